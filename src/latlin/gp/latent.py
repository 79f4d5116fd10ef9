"""The latent function given the data: one Gaussian over its values at the inputs, carried to any other input.

A Gaussian process is the latent linear model N(w | μ, K) ∏_n φ_n(w_n) (Challis (2013), eq. 5.1.1). Every engine in
site form gives (γ, ν), from which α = K⁻¹(m − μ) = ν − Γ(m − μ) and R = (K + Γ⁻¹)⁻¹ follow without an inverse of K, and

    w_* ~ N(μ + k_*ᵀα,  k_** − k_*ᵀ R k_*),

which is B.6.1, (B.6.5), with S in site form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy import linalg
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from latlin.densities.precision import kernel_weights
from latlin.gp.approximation import Fitter, LatentFunction
from latlin.gp.search import Found
from latlin.gp.setting import MAX_JITTER, Setting, row_blocks
from latlin.inference.engine import Engine
from latlin.inference.ep.engine import ExpectationPropagation
from latlin.inference.ep.sweeps import cavity
from latlin.inference.exact import Exact
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.infer import infer, resolve
from latlin.inference.model import GaussianFactor, LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import Cholesky, cholesky
from latlin.numerics.options import is_name
from latlin.numerics.rng import RandomState, generator
from latlin.potentials.base import Potential
from latlin.potentials.checks import naming_rows
from latlin.potentials.predictive import Predictive

# --- What the sites add to a Gaussian process, R = (K + Γ⁻¹)⁻¹, without an inverse of K.
#
# S = K − K R K,   R = |Γ|^½ (J + |Γ|^½ K |Γ|^½)⁻¹ |Γ|^½,   J = sign Γ (1 where γ = 0)
#
# With γ ≥ 0 the inner matrix is B = I + Γ^½KΓ^½, whose eigenvalues are at least one however singular K is.


class Curvature(Protocol):
    """R, however it is stored."""

    def weights(self, K: Array, nu: Array, x: Array) -> Array:
        """α = K⁻¹x of the posterior mean x, from the sites' pulls ν."""
        ...

    def squares(self, k: Array) -> Array:
        """kᵀRk for the columns of an N×M matrix."""
        ...

    def product(self, k: Array) -> Array:
        """kᵀRk as an M×M matrix."""
        ...


@dataclass(frozen=True)
class PositiveCurvature:
    """All γ ≥ 0: through the Cholesky factor of B."""

    root: Array
    inner: Cholesky

    def weights(self, K: Array, nu: Array, x: Array) -> Array:
        return kernel_weights(K, self.root, self.inner, nu)

    def squares(self, k: Array) -> Array:
        half = self._half(k)
        return np.einsum("nm,nm->m", half, half)

    def product(self, k: Array) -> Array:
        half = self._half(k)
        return half.T @ half

    def _half(self, k: Array) -> Array:
        return self.inner.whiten(self.root[:, None] * k)


@dataclass(frozen=True)
class MixedCurvature:
    """Some γ < 0 (outliers under a heavy-tailed likelihood): R itself."""

    matrix: Array
    gamma: Array

    def weights(self, K: Array, nu: Array, x: Array) -> Array:
        return nu - self.gamma * x

    def squares(self, k: Array) -> Array:
        return np.einsum("nm,nm->m", k, self.matrix @ k)

    def product(self, k: Array) -> Array:
        return k.T @ self.matrix @ k


def curvature(K: Array, gamma: Array) -> Curvature:
    """R of a kernel matrix and site precisions."""
    root = np.sqrt(np.abs(gamma))
    inner = root[:, None] * K * root
    if np.all(gamma >= 0.0):
        inner[np.diag_indices(len(root))] += 1.0
        return PositiveCurvature(root, cholesky(inner, name="I + Γ^½KΓ^½"))
    inner[np.diag_indices(len(root))] += np.where(gamma < 0.0, -1.0, 1.0)
    matrix = root[:, None] * linalg.inv(inner) * root
    return MixedCurvature(0.5 * (matrix + matrix.T), gamma)


@dataclass(frozen=True)
class Latent:
    """The posterior over the function's values at the training inputs, carried to others.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
    setting : Setting
    K : ndarray of shape (n, n)
        Kernel matrix, jitter included.
    jitter : float
        What was added to the diagonal of K; 0 unless it was numerically singular.
    potential : Potential
        The likelihood of the training targets.
    posterior : Posterior
    """

    X: Array
    setting: Setting
    K: Array
    jitter: float
    potential: Potential
    posterior: Posterior

    @property
    def mean(self) -> float:
        """Prior mean μ."""
        return self.setting.mean

    @property
    def sites(self) -> SiteParameters:
        assert self.posterior.sites is not None  # `condition` checks it
        return self.posterior.sites

    @cached_property
    def alpha(self) -> Array:
        """K⁻¹(m − μ)."""
        return self.curvature.weights(self.K, self.sites.nu, self.posterior.mean - self.mean)

    @cached_property
    def curvature(self) -> Curvature:
        return curvature(self.K, self.sites.gamma)

    def means(self, new: Array) -> Array:
        """Means at new inputs."""
        return np.concatenate([self.mean + self._cross(block) @ self.alpha for block in row_blocks(new)])

    def marginals(self, new: Array) -> tuple[Array, Array]:
        """Means and variances at new inputs; variances are never below zero."""
        means, variances = zip(*map(self._block, row_blocks(new)), strict=True)
        return np.concatenate(means), np.concatenate(variances)

    def _block(self, new: Array) -> tuple[Array, Array]:
        cross = self._cross(new)
        variances = self.setting.diagonal(new) - self.curvature.squares(cross.T)
        return self.mean + cross @ self.alpha, np.maximum(variances, 0.0)

    def _cross(self, new: Array) -> Array:
        return self.setting.cross(new, self.X)

    def covariance(self, new: Array) -> Array:
        """Covariance matrix at new inputs."""
        return self.setting.prior(new) - self.curvature.product(self._cross(new).T)

    def with_posterior(self, posterior: Posterior) -> Latent:
        """The same with another word on its posterior."""
        return replace(self, posterior=posterior)

    def leave_one_out(self) -> Array:
        """log p(y_n | all other y) with the n-th site taken out of the posterior.

        q₋ₙ ∝ q(w_n) / exp(−½γ_n x² + ν_n x) is the cavity of expectation propagation; its product with φ_n is
        integrated in one dimension. Exact for Gaussian noise.
        """
        x, variance = self.posterior.mean - self.mean, self.posterior.variance
        return leave_one_out_density(self.potential, self.sites, x, variance, self.mean)


def leave_one_out_density(potential: Potential, sites: SiteParameters, x: Array, variance: Array, mean: float) -> Array:
    """log p(y_n | all other y) from the marginals of the sites about the prior mean; see `Latent.leave_one_out`."""
    proper, centre, spread = cavity(*sites, x, variance, power=1.0)
    if not proper.all():
        raise ValueError(
            f"the posterior without its own site is no density at {int((~proper).sum())} of {len(x)} observations "
            "(outliers close to each other under a heavy-tailed likelihood); use a log-concave likelihood"
        )
    return potential.tilted_moments(mean + centre, spread).log_z


def condition(
    setting: Setting,
    X: Array,
    K: Array,
    y: Array,
    engine: Engine,
    start: Posterior | None = None,
    verbose: bool = False,
) -> Latent:
    """The posterior of N(w | mean, K) ∏ φ_n(w_n) by an engine."""
    (prior, jitter), potential = prior_of(K, setting.mean), setting.likelihood.observe(y)
    model = LatentLinearModel([prior, SiteFactor(None, potential)])
    posterior = require_sites(infer(model, engine, start=start, verbose=verbose))
    return Latent(X, setting, prior.cov, jitter, potential, posterior)


def warm_start(start: LatentFunction | None, model: LatentLinearModel) -> Posterior | None:
    """The posterior of another fit where it is one of the same coordinates and sites."""
    if start is None or start.posterior.sites is None:
        return None
    posterior, count = start.posterior, model.site_count(model.sites[0])
    same = posterior.model.dim == model.dim and len(start.posterior.sites.gamma) == count
    return posterior if same else None


def accuracy_for(rows: int) -> float:
    """Relative change of the evidence at which a search ends: about a hundredth of its unit, whatever the rows."""
    return float(np.clip(1e-2 / rows, 1e-8, 1e-6))


def require_sites(posterior: Posterior) -> Posterior:
    """A posterior that has stand-ins of the sites; a sentence for one that has none."""
    if posterior.sites is None:
        raise ValueError(
            f"engine {posterior.engine!r} gives no Gaussian stand-ins of the sites, which prediction needs; "
            "use 'laplace', 'lvb', 'ep', 'gkl' (with full covariance) or, for exact processes, 'mean-field' or 'ai-kl'"
        )
    return posterior


def prior_of(K: Array, mean: float) -> tuple[GaussianFactor, float]:
    """N(w | mean, K), and what had to be added to the diagonal of K."""
    try:
        return GaussianFactor(mean, K), 0.0
    except ValueError:
        if not np.all(np.isfinite(K)):
            raise
    jitter = cholesky(K, name="the kernel matrix, even with jitter,", max_jitter=MAX_JITTER).jitter
    # a factor that just fits may still lose to rounding: one step more
    raised = K + 10.0 * jitter * np.eye(len(K))
    return GaussianFactor(mean, raised), 10.0 * jitter


# --- A fitted Gaussian process: parameters, posterior and training rows, and its answers at new inputs.


def default_kernel(X: Array, size: float = 1.0) -> Any:
    """Constant × squared exponential, both free, from the units of the inputs and of the latent function on.

    From a length far below the distances, or a variance far below the noise, the evidence has next to no slope.
    """
    width, decades = float(np.sqrt(X.var(axis=0).mean())) or 1.0, np.array([1e-5, 1e5])
    return ConstantKernel(size**2, size**2 * decades) * RBF(width, width * decades)


def copy_kernel(kernel: Any) -> Any:
    """A copy of the kernel that the user gave."""
    if not (callable(kernel) and hasattr(kernel, "get_params")):
        raise ValueError(f"kernel must be a kernel of sklearn.gaussian_process.kernels or None, got {kernel!r}")
    return clone(kernel)


def resolve_engine(engine: str | Engine, likelihood: Potential) -> Engine:
    """An engine for sites on the coordinates; "auto" is exact for Gaussian noise and Gaussian KL otherwise.

    Expectation propagation visits all sites at once, as one sweep over single sites costs N rank-one updates of an N×N
    matrix.
    """
    if is_name(engine, "auto"):
        return Exact() if likelihood.gaussian else GaussianKL()
    if is_name(engine, "ep"):
        return ExpectationPropagation(schedule="parallel", sweeps=500)
    return resolve(engine)


@dataclass(frozen=True)
class Process:
    """What a fit leaves.

    Parameters
    ----------
    fitter : Fitter
        The training rows, prepared for fits at other parameters.
    found : Found
        Where evidence maximisation ended.
    """

    fitter: Fitter
    found: Found

    @property
    def X(self) -> Array:
        return self.fitter.X

    @property
    def setting(self) -> Setting:
        return self.found.setting

    def marginals(self, new: Array) -> tuple[Array, Array]:
        """Means and variances of the latent function at new inputs."""
        return self.found.latent.marginals(new)

    def means(self, new: Array) -> Array:
        """Means of the latent function at new inputs."""
        return self.found.latent.means(new)

    def covariance(self, new: Array) -> Array:
        """Covariance of the latent function at new inputs."""
        return self.found.latent.covariance(new)

    def predictive(self, new: Array, beside: Mapping[str, Array] | None = None) -> Predictive:
        """The distribution of new observations, the latent function integrated out in one dimension.

        `beside` has what belongs to the rows, such as their trials, by the name of the likelihood's argument.
        """
        return self.setting.likelihood.template.replace(**(beside or {})).predictive(*self.marginals(new))

    def log_density(self, new: Array, y: Array) -> Array:
        """log p(y | training rows) of new observations with what belongs to them, shape (n, columns)."""
        with naming_rows():
            sites = self.setting.likelihood.observe(y)
        return sites.tilted_moments(*self.marginals(new)).log_z

    @property
    def posterior(self) -> Posterior:
        """Over the coordinates of the approximation; without one, the latent function at the training inputs."""
        return self.found.latent.posterior

    def leave_one_out(self) -> Array:
        """log p(y_n | all other y)."""
        return self.found.latent.leave_one_out()

    def sample_latent(self, new: Array, count: int, random_state: RandomState) -> Array:
        """Joint draws of the latent function, one per row."""
        covariance = self.covariance(new)
        factor = cholesky(covariance, name="the covariance of the new inputs", max_jitter=1e-6).factor
        return self.means(new) + generator(random_state).standard_normal((count, len(new))) @ factor

    def sample(
        self,
        new: Array,
        count: int,
        random_state: RandomState,
        beside: Mapping[str, Array] | None = None,
    ) -> Array:
        """Joint draws of new observations, one per row."""
        rng = generator(random_state)
        draws = self.sample_latent(new, count, rng)
        template = self.setting.likelihood.template.replace(**(beside or {}))
        return template.predictive(draws, np.zeros_like(draws)).sample(1, rng)[0]
