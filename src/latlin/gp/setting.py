"""What is learnt of a Gaussian process: kernel, likelihood, and the units of the latent function."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latlin.gp.likelihoods import Likelihood
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
