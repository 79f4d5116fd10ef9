"""What every engine returns: a density over w, the log evidence with its kind, and how it got there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latlin.inference.model import LatentLinearModel
from latlin.inference.sites import SiteParameters
from latlin.numerics.rng import RandomState

Array = NDArray[np.float64]
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


@dataclass(frozen=True)
class Posterior:
    """An approximate (or exact) posterior of a `LatentLinearModel`.

    Attributes
    ----------
    density : Gaussian or another density over w
    log_evidence : float
        log Z with every constant; what it is worth is in `evidence_kind`.
    evidence_kind : {"exact", "lower bound", "approximation", "none"}
    engine : str
        Short name of the engine.
    converged : bool
    n_iter : int
    trace : ndarray
        The objective after each step.
    elapsed : float
        Seconds.
    message : str
        How the fit ended, in words.
    sites : SiteParameters or None
        γ and ν of the Gaussian stand-ins, where the engine has them; with respect to x = h_nᵀ(w − prior mean).
    model : LatentLinearModel
    """

    model: LatentLinearModel = field(repr=False)
    density: Density = field(repr=False)
    log_evidence: float
    evidence_kind: EvidenceKind
    engine: str
    converged: bool
    n_iter: int
    trace: Array = field(repr=False)
    elapsed: float
    message: str
    sites: SiteParameters | None = field(default=None, repr=False)

    @property
    def mean(self) -> Array:
        """Posterior mean (the mode, for a point estimate)."""
        return self.density.mean

    @property
    def variance(self) -> Array:
        """Marginal variances of the coordinates of w."""
        return self.density.variance

    def covariance(self) -> Array:
        """The covariance matrix, dense."""
        return self.density.covariance()

    def sample(self, count: int, random_state: RandomState = None) -> Array:
        """Draws of w, one a row."""
        return self.density.sample(count, random_state)

    def logpdf(self, w: ArrayLike) -> Array:
        """Log density at one w or each row of a matrix."""
        return self.density.logpdf(w)

    def project(self, H: Any) -> Any:
        """Marginals of Hw, one a row of H: `.mean`, `.variance` and the density."""
        return self.density.project(H)
