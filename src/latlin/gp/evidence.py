"""The evidence of a Gaussian process as a function of kernel and likelihood parameters, with its gradient.

The engine's evidence gradient gives ∂ log Z/∂K and one derivative a site and likelihood parameter (Challis (2013),
eq. B.6.7, corrected: at the optimum of a bound only the explicit dependence counts); the kernel's own gradient and the
chain rule do the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latlin.gp.latent import Latent, condition
from latlin.gp.likelihoods import Likelihood
from latlin.inference.engine import Engine
from latlin.inference.evidence.gradient import evidence_gradient
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable


@storable
@dataclass(frozen=True)
class Setting:
    """Kernel, likelihood, and the units of the latent function: N(w | mean, amplitude² K).

    Parameters
    ----------
    kernel : scikit-learn kernel
    likelihood : Likelihood
    mean, amplitude : float
    """

    kernel: Any
    likelihood: Likelihood
    mean: float = 0.0
    amplitude: float = 1.0

    @property
    def theta(self) -> Array:
        """Free parameters: the kernel's, then the likelihood's."""
        return np.concatenate([self.kernel.theta, self.likelihood.theta])

    @property
    def bounds(self) -> Array:
        own = np.asarray(self.kernel.bounds, float).reshape(-1, 2)
        return np.concatenate([own, self.likelihood.bounds])

    def at(self, theta: Array) -> Setting:
        """The same at other free parameters; those of the kernel alone leave the likelihood as it is."""
        theta, split = np.asarray(theta, float), self.kernel.n_dims
        if theta.shape not in {(split,), (len(self.theta),)}:
            raise ValueError(
                f"theta must hold {split} kernel parameters and, if any, {len(self.theta) - split} of the likelihood, "
                f"got shape {theta.shape}"
            )
        kernel = self.kernel.clone_with_theta(theta[:split])
        if len(theta) == split:
            return replace(self, kernel=kernel)
        return replace(self, kernel=kernel, likelihood=self.likelihood.at(theta[split:]))

    def cross(self, new: Array, old: Array) -> Array:
        """Prior covariance between two sets of inputs."""
        return self.amplitude**2 * self.kernel(new, old)

    def diagonal(self, new: Array) -> Array:
        return self.amplitude**2 * self.kernel.diag(new)

    def prior(self, new: Array) -> Array:
        """Prior covariance of new inputs, white noise included."""
        return self.amplitude**2 * self.kernel(new)


def fit_latent(
    setting: Setting, X: Array, y: Array, engine: Engine, start: Posterior | None = None, verbose: bool = False
) -> Latent:
    """The posterior at fixed parameters."""
    return condition(setting.prior(X), setting.mean, setting.likelihood.observe(y), engine, start, verbose)


def fit_with_gradient(
    setting: Setting, X: Array, y: Array, engine: Engine, start: Posterior | None = None
) -> tuple[Latent, Array]:
    """The posterior at fixed parameters, and ∂ log evidence/∂theta; the kernel is evaluated once."""
    K, slopes = setting.kernel(X, eval_gradient=True)
    latent = condition(setting.amplitude**2 * K, setting.mean, setting.likelihood.observe(y), engine, start)
    return latent, _pulled(setting, latent, slopes)


def log_evidence_gradient(setting: Setting, X: Array, latent: Latent) -> Array:
    """∂ log evidence/∂theta at the posterior that `fit_latent` gave."""
    return _pulled(setting, latent, setting.kernel(X, eval_gradient=True)[1])


def _pulled(setting: Setting, latent: Latent, slopes: Array) -> Array:
    found = evidence_gradient(latent.posterior)
    flat = slopes.reshape(-1, slopes.shape[-1])
    # Σ_ij (∂ log Z/∂K_ij) ∂K_ij/∂θ
    own = setting.amplitude**2 * (found.gaussians[0].d_cov.ravel() @ flat)
    return np.concatenate([own, setting.likelihood.pull(found.sites[0])])
