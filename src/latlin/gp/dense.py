"""The exact Gaussian process: all inputs, dense kernel matrices, any engine in site form.

The engine's evidence gradient gives ∂ log Z/∂K and one derivative per site and likelihood parameter (Challis (2013),
eq. B.6.7, corrected: at the optimum of a bound only the explicit dependence counts); the kernel's own gradient and the
chain rule do the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from latlin.gp.approximation import LatentFunction
from latlin.gp.latent import Latent, condition
from latlin.gp.setting import Setting
from latlin.gp.whitened import WhitenedFitter, needs_whitening
from latlin.inference.affine.engine import AffineKL
from latlin.inference.engine import Engine
from latlin.inference.evidence.gradient import evidence_gradient
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable, storable_by_arguments


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
