"""A fitted Gaussian process: parameters, posterior and training rows, and its answers at new inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from latlin.gp.approximation import Fitter
from latlin.gp.search import Found
from latlin.gp.setting import Setting
from latlin.inference.engine import Engine
from latlin.inference.ep.engine import ExpectationPropagation
from latlin.inference.exact import Exact
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.infer import resolve
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import cholesky
from latlin.numerics.rng import RandomState, generator
from latlin.potentials.base import Potential
from latlin.potentials.predictive import Predictive


def default_kernel(X: Array, size: float = 1.0) -> Any:
    """Constant × squared exponential, both free, from the units of the inputs and of the latent function on.

    From a length far below the distances, or a variance far below the noise, the evidence has next to no slope.
    """
    width, decades = float(np.sqrt(X.var(axis=0).mean())) or 1.0, np.array([1e-5, 1e5])
    return ConstantKernel(size**2, size**2 * decades) * RBF(width, width * decades)


def given_kernel(kernel: Any) -> Any:
    """A copy of the kernel that the user gave."""
    if not (callable(kernel) and hasattr(kernel, "get_params")):
        raise ValueError(f"kernel must be a kernel of sklearn.gaussian_process.kernels or None, got {kernel!r}")
    return clone(kernel)


def resolve_engine(engine: str | Engine, likelihood: Potential) -> Engine:
    """An engine for sites on the coordinates; "auto" is exact for Gaussian noise and Gaussian KL otherwise.

    Expectation propagation visits all sites at once, as one sweep over single sites costs N rank-one updates of an N×N
    matrix.
    """
    if engine == "auto":
        return Exact() if likelihood.gaussian else GaussianKL()
    if engine == "ep":
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

    def predictive(self, new: Array) -> Predictive:
        """The distribution of new observations, the latent function integrated out in one dimension."""
        return self.setting.likelihood.template.predictive(*self.marginals(new))

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

    def sample(self, new: Array, count: int, random_state: RandomState) -> Array:
        """Joint draws of new observations, one per row."""
        rng = generator(random_state)
        draws = self.sample_latent(new, count, rng)
        return self.setting.likelihood.template.predictive(draws, np.zeros_like(draws)).sample(1, rng)[0]
