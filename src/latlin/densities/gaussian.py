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

#: distance from the mean beyond which a square may overflow
FAR = 1e100


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
        square, size = self.squares(w)
        log_density = -0.5 * (square * size * size + self.structure.log_det + self.degrees * LOG_2PI)
        return log_density if np.ndim(w) == 2 else log_density[0]

    def squares(self, w: ArrayLike) -> tuple[Array, Array]:
        """δᵀS⁻¹δ/c² of δ = w − mean for each row, and c: one, but the size of δ where its square would overflow."""
        away = np.atleast_2d(np.asarray(w, float)) - self.mean
        far = np.max(np.abs(away), axis=1, initial=0.0)
        size = np.where(far > FAR, far, 1.0)
        return self.structure.quadratic(away / size[:, None]), size

    def project(self, rows: Any) -> NormalMarginals:
        """Marginals of Hw, one per row of H (dense or sparse)."""
        return NormalMarginals(np.asarray(rows @ self.mean), self.structure.project(rows))
