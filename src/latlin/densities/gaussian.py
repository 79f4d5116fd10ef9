"""A Gaussian over w: a mean and any covariance structure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from latlin.densities.density import NormalMarginals
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.rng import RandomState, generator
from latlin.numerics.stored import storable


class Covariance(Protocol):
    """What a Gaussian asks of its covariance S, however it is stored."""

    @property
    def dim(self) -> int: ...

    @property
    def log_det(self) -> float:
        """log det S."""
        ...

    def diagonal(self) -> Array:
        """Variances of the coordinates."""
        ...

    def dense(self) -> Array:
        """S itself, D×D."""
        ...

    def project(self, rows: Any) -> Array:
        """h_nᵀ S h_n for the rows of an N×D matrix, dense or sparse."""
        ...

    def quadratic(self, deviations: Array) -> Array:
        """δᵀ S⁻¹ δ for each row δ."""
        ...

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """`count` draws of N(0, S), one per row."""
        ...


@storable
@dataclass(frozen=True)
class Gaussian:
    """N(w | mean, S).

    Parameters
    ----------
    mean : ndarray of shape (dim,)
    structure : Covariance
        How S is stored; see `latlin.densities`.
    """

    mean: Array
    structure: Covariance

    @property
    def dim(self) -> int:
        return len(self.mean)

    @property
    def variance(self) -> Array:
        return self.structure.diagonal()

    @property
    def degrees(self) -> int:
        """Dimension of the space on which this is a density: less than `dim` under linear constraints."""
        return int(getattr(self.structure, "degrees", self.dim))

    @property
    def entropy(self) -> float:
        """½ log det(2πe S)."""
        return 0.5 * (self.degrees * (1.0 + LOG_2PI) + self.structure.log_det)

    def covariance(self) -> Array:
        """S as a dense matrix."""
        return self.structure.dense()

    def times_covariance(self, v: Array) -> Array:
        """S v, without a dense S where the structure can do without."""
        times = getattr(self.structure, "times", None)
        return self.covariance() @ v if times is None else times(v)

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        """Draws, one per row."""
        return self.mean + self.structure.draw(count, generator(random_state))

    def logpdf(self, w: ArrayLike) -> Array:
        """log N(w | mean, S) for one vector or each row of a matrix."""
        points = np.asarray(w, float)
        square = self.structure.quadratic(np.atleast_2d(points) - self.mean)
        log_density = -0.5 * (square + self.structure.log_det + self.degrees * LOG_2PI)
        return log_density if points.ndim == 2 else log_density[0]

    def project(self, rows: Any) -> NormalMarginals:
        """Marginals of Hw, one per row of H (dense or sparse)."""
        return NormalMarginals(np.asarray(rows @ self.mean), self.structure.project(rows))
