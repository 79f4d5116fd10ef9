"""What whoever judges an approximate posterior asks of it: a density, an evidence with its kind, and the model."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from numpy.typing import ArrayLike

from latlin.inference.model import LatentLinearModel
from latlin.numerics.arrays import Array
from latlin.numerics.rng import RandomState

EvidenceKind = Literal["exact", "lower bound", "approximation", "none"]


class Density(Protocol):
    """What a posterior asks of its density."""

    @property
    def mean(self) -> Array: ...

    @property
    def variance(self) -> Array: ...

    def covariance(self) -> Array: ...

    def sample(self, count: int, random_state: RandomState = None) -> Array: ...

    def logpdf(self, w: ArrayLike) -> Array: ...

    def project(self, rows: Any) -> Any: ...


class Approximation(Protocol):
    """A posterior as a diagnosis sees it; `Posterior` is one."""

    @property
    def model(self) -> LatentLinearModel: ...

    @property
    def density(self) -> Density: ...

    @property
    def log_evidence(self) -> float: ...

    @property
    def evidence_kind(self) -> EvidenceKind: ...

    @property
    def bound_error(self) -> float: ...

    @property
    def engine(self) -> str: ...

    @property
    def converged(self) -> bool: ...

    @property
    def caution(self) -> tuple[str, str] | None: ...

    @property
    def mean(self) -> Array: ...

    @property
    def variance(self) -> Array: ...

    def covariance(self) -> Array: ...
