"""What every density over w answers, whatever its shape."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import ArrayLike

from latlin.numerics.arrays import Array
from latlin.numerics.rng import RandomState


class Density(Protocol):
    """A density over w."""

    @property
    def mean(self) -> Array: ...

    @property
    def variance(self) -> Array: ...

    def covariance(self) -> Array: ...

    def sample(self, count: int, random_state: RandomState = None) -> Array: ...

    def logpdf(self, w: ArrayLike) -> Array: ...

    def project(self, rows: Any) -> Any: ...
