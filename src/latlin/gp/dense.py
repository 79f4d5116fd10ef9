"""The exact Gaussian process: all inputs, dense kernel matrices, any engine in site form.

The engine's evidence gradient gives ∂ log Z/∂K and one derivative per site and likelihood parameter (Challis (2013),
eq. B.6.7, corrected: at the optimum of a bound only the explicit dependence counts); the kernel's own gradient and the
chain rule do the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.linalg import solve_triangular

from latlin.densities.gaussian import Gaussian
from latlin.gp.approximation import LatentFunction
from latlin.gp.latent import Latent, condition, prior_of
from latlin.gp.setting import Setting, row_blocks
from latlin.inference.affine.engine import AffineKL
from latlin.inference.engine import Engine
from latlin.inference.evidence.gradient import evidence_gradient
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.infer import infer
from latlin.inference.mean_field import MeanField
from latlin.inference.model import GaussianFactor, LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable, storable_by_arguments
from latlin.potentials.base import Potential

# --- Exact processes for engines without stand-ins of the sites: mean field and affine-independent KL.
#
# The values at the training inputs are w = μ + Lu with K = LLᵀ and u ~ N(0, I), so that the sites are on projections
# l_nᵀu. Factors over the coordinates of u leave the prior's correlations in L, where factors over w itself would lose
# them. With h_* = L⁻¹k_* a new value is
#
#     w_* = μ + h_*ᵀu + ε,   Var ε = k_** − |h_*|²,
#
# and for a Gaussian over u the evidence moves with the kernel through L alone:
#
#     ∂B/∂L = ⟨ψ′⟩uᵀ + 2 (∂⟨ψ⟩/∂s²) L S,   ∂B/∂K = sym L⁻ᵀ Φ(Lᵀ ∂B/∂L) L⁻¹,   Φ the lower triangle, its diagonal halved.
#
# Affine-independent KL has no such gradient: its parameters are learnt by Gaussian KL, and its posterior is fitted
# there.


WHITENED = "; of the whitened values at the training inputs"
LEARNT = "; parameters learnt by Gaussian KL, as the affine bound has no gradient in them"


def needs_whitening(engine: Engine) -> bool:
    """Whether an engine has no stand-ins, but serves a process through whitened values."""
    diagonal = isinstance(engine, GaussianKL) and engine.covariance == "diagonal"
    return diagonal or isinstance(engine, MeanField | AffineKL)


@storable
@dataclass(frozen=True)
class WhitenedFitter:
    """The posterior of the whitened values, by parameters.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
    y : ndarray of shape (n,)
    engine : Engine
    settled : bool
        The parameters were learnt by another engine.
    """

    X: Array
    y: Array
    engine: Engine
    settled: bool = False

    def fit(self, setting: Setting, start: object = None, verbose: bool = False) -> WhitenedFunction:
        """The posterior at fixed parameters."""
        (prior, jitter), potential = prior_of(setting.prior(self.X), setting.mean), setting.likelihood.observe(self.y)
        assert prior.factor is not None  # a full covariance
        sites = SiteFactor(np.ascontiguousarray(prior.factor.T), potential, offset=setting.mean)
        model = LatentLinearModel([GaussianFactor(dim=len(self.X)), sites])
        near = start.posterior if isinstance(start, WhitenedFunction) else None
        posterior = infer(model, self.engine, start=near, verbose=verbose)
        note = WHITENED + (LEARNT if self.settled else "")
        posterior = replace(posterior, message=posterior.message + note)
        return WhitenedFunction(self.X, setting, sites.H, jitter, potential, posterior)

    def fit_with_gradient(self, setting: Setting, start: object = None) -> tuple[WhitenedFunction, Array]:
        """The same, and ∂ log evidence/∂theta."""
        latent = self.fit(setting, start)
        return latent, self.gradient(latent)

    def gradient(self, latent: WhitenedFunction) -> Array:
        """∂ log evidence/∂theta at a latent function that `fit` gave."""
        density, L, setting = latent.posterior.density, latent.root, latent.setting
        if not isinstance(density, Gaussian):
            raise ValueError(
                "the affine bound has no gradient in the kernel; use engine 'gkl' to learn or integrate it"
            )
        x, variance = latent.training
        expected = latent.potential.expected_log(x, variance)
        by_root = np.outer(expected.d_mean, density.mean)
        by_root += 2.0 * expected.d_var[:, None] * density.times_covariance(L.T).T
        half = np.tril(L.T @ np.tril(by_root))
        half[np.diag_indices(len(half))] *= 0.5
        turned = solve_triangular(L, half, lower=True, trans="T")
        by_kernel = solve_triangular(L, turned.T, lower=True, trans="T")
        slopes = setting.kernel(self.X, eval_gradient=True)[1]
        symmetric = 0.5 * (by_kernel + by_kernel.T).ravel()
        own = setting.amplitude**2 * (symmetric @ slopes.reshape(-1, slopes.shape[-1]))
        found = evidence_gradient(latent.posterior)
        return np.concatenate([own, setting.likelihood.pull(found.sites[0])])

    def refined(self, latent: WhitenedFunction) -> None:
        """There is nothing to refine."""
        return None


@storable
@dataclass(frozen=True)
class WhitenedFunction:
    """The posterior over the whitened values, carried to any input; means and variances are those of its density.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
    setting : Setting
    root : ndarray of shape (n, n)
        L, lower triangular.
    jitter : float
    potential : Potential
        The likelihood of the training targets.
    posterior : Posterior
        Over u.
    """

    X: Array
    setting: Setting
    root: Array
    jitter: float
    potential: Potential
    posterior: Posterior

    @cached_property
    def excess(self) -> Array:
        """S − I."""
        return np.asarray(self.posterior.covariance()) - np.eye(len(self.root))

    @property
    def training(self) -> tuple[Array, Array]:
        """Means and variances at the training inputs."""
        spread = np.einsum("nm,nm->n", self.root @ self.excess, self.root) + np.einsum("nm,nm->n", self.root, self.root)
        return self.setting.mean + self.root @ self.posterior.mean, np.maximum(spread, 0.0)

    def _rows(self, new: Array) -> Array:
        """h_* of new inputs."""
        return np.asarray(solve_triangular(self.root, self.setting.cross(new, self.X).T, lower=True).T)

    def means(self, new: Array) -> Array:
        """Means at new inputs."""
        return np.concatenate(
            [self.setting.mean + self._rows(block) @ self.posterior.mean for block in row_blocks(new)]
        )

    def marginals(self, new: Array) -> tuple[Array, Array]:
        """Means and variances at new inputs."""
        means, variances = zip(*map(self._block, row_blocks(new)), strict=True)
        return np.concatenate(means), np.concatenate(variances)

    def _block(self, new: Array) -> tuple[Array, Array]:
        h = self._rows(new)
        variances = self.setting.diagonal(new) + np.einsum("nm,nm->n", h @ self.excess, h)
        return self.setting.mean + h @ self.posterior.mean, np.maximum(variances, 0.0)

    def covariance(self, new: Array) -> Array:
        """Covariance matrix at new inputs."""
        h = self._rows(new)
        return self.setting.prior(new) + h @ self.excess @ h.T

    def leave_one_out(self) -> Array:
        """Refused: without stand-ins no site can be taken out of the posterior."""
        raise ValueError(
            f"leave_one_out takes the stand-in of a site out of the posterior, and engine {self.posterior.engine!r} "
            "has none; use 'gkl' (with full covariance), 'ep', 'lvb' or 'laplace'"
        )

    def with_posterior(self, posterior: Posterior) -> WhitenedFunction:
        """The same with another word on its posterior."""
        return replace(self, posterior=posterior)


@storable_by_arguments
@dataclass(frozen=True)
class Dense:
    """No approximation of the prior: N×N kernel matrices, so up to some thousand rows.

    Examples
    --------
    >>> Dense().name
    'exact'
    """

    name: ClassVar[str] = "exact"

    def refusal(self, setting: Setting, n_rows: int, n_columns: int) -> str:
        """Every kernel and likelihood is taken."""
        return ""

    def longest_product(self, n_rows: int) -> float:
        """That of a factorisation, N³/3."""
        return n_rows**3 / 3.0

    def prepare(
        self, setting: Setting, X: Array, y: Array, engine: Engine, rng: np.random.Generator, verbose: bool = False
    ) -> DenseFitter | WhitenedFitter:
        """Nothing to prepare; engines without stand-ins of the sites go through whitened values."""
        if isinstance(engine, AffineKL):
            return DenseFitter(X, y, GaussianKL(), then=engine)
        return WhitenedFitter(X, y, engine) if needs_whitening(engine) else DenseFitter(X, y, engine)


@storable
@dataclass(frozen=True)
class DenseFitter:
    """The exact posterior of all training rows, by parameters.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
    y : ndarray of shape (n,)
    engine : Engine
    then : Engine, optional
        Of the last fit, at the parameters that were learnt.
    """

    X: Array
    y: Array
    engine: Engine
    then: Engine | None = None

    def fit(self, setting: Setting, start: LatentFunction | None = None, verbose: bool = False) -> Latent:
        """The posterior at fixed parameters."""
        return condition(setting, self.X, setting.prior(self.X), self.y, self.engine, _posterior(start), verbose)

    def fit_with_gradient(self, setting: Setting, start: LatentFunction | None = None) -> tuple[Latent, Array]:
        """The posterior at fixed parameters, and ∂ log evidence/∂theta; the kernel is evaluated once."""
        K, slopes = setting.kernel(self.X, eval_gradient=True)
        latent = condition(setting, self.X, setting.amplitude**2 * K, self.y, self.engine, _posterior(start))
        return latent, _pulled(latent, slopes)

    def gradient(self, latent: Latent) -> Array:
        """∂ log evidence/∂theta at a posterior of `fit`."""
        return _pulled(latent, latent.setting.kernel(self.X, eval_gradient=True)[1])

    def refined(self, latent: LatentFunction) -> WhitenedFitter | None:
        """The engine of the last fit, where there is one."""
        return None if self.then is None else WhitenedFitter(self.X, self.y, self.then, settled=True)


def _posterior(start: LatentFunction | None) -> Posterior | None:
    return None if start is None else start.posterior


def _pulled(latent: Latent, slopes: Array) -> Array:
    found, setting = evidence_gradient(latent.posterior), latent.setting
    flat = slopes.reshape(-1, slopes.shape[-1])
    # Σ_ij (∂ log Z/∂K_ij) ∂K_ij/∂θ
    own = setting.amplitude**2 * (found.gaussians[0].d_cov.ravel() @ flat)
    return np.concatenate([own, setting.likelihood.pull(found.sites[0])])
