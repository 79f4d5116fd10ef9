"""The integral, what it is worth, and what was evaluated on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.arrays import Array
from latlin.quadrature.moments import Moments
from latlin.quadrature.surrogate import Hyperparameters


class Evaluations(NamedTuple):
    """Points of shape (n, d) and the integrand there."""

    points: Array
    values: Array


class IntegrandError(ValueError):
    """The integrand raised, or gave something that is no number. `evaluations` has all that went well before:
    pass it as `start=` to go on from there."""

    def __init__(self, text: str, evaluations: Evaluations) -> None:
        super().__init__(f"{text}; {len(evaluations.values)} earlier evaluations are kept in .evaluations")
        self.evaluations = evaluations


class Trace(NamedTuple):
    """How the belief about the integral changed: one entry a round."""

    evaluations: NDArray[np.int64]
    mean: Array
    sd: Array
    seconds: Array


@dataclass(frozen=True)
class Integral:
    """The belief about ∫ f(x) p(x) dx.

    Attributes
    ----------
    mean, sd : float
        Location and scale of the belief, in units of exp(log_scale).
    dof : float
        Degrees of freedom of its Student-t distribution (inf: a normal one).
    evaluations : Evaluations
        All points and values (log values where those were asked for).
    trace : Trace
    hyperparameters : Hyperparameters or None
        The most probable ones; None for Monte Carlo.
    converged : bool
        The tolerance was met. False when none was set.
    message : str
    log_scale : float
        0, except where the integrand is given by its logarithm.
    belief : Moments
        The distribution of which `mean`, `sd` and `dof` are a summary: a mixture over hyperparameters.
    """

    mean: float
    sd: float
    dof: float
    evaluations: Evaluations
    trace: Trace
    hyperparameters: Hyperparameters | None
    converged: bool
    message: str
    log_scale: float
    belief: Moments = field(repr=False)

    @property
    def n_evaluations(self) -> int:
        """How often the integrand was evaluated."""
        return len(self.evaluations.values)

    @property
    def log_evidence(self) -> float:
        """log of the mean of the belief; for a likelihood under its prior the log evidence."""
        return float(np.log(self.mean) + self.log_scale) if self.mean > 0.0 else -np.inf

    @property
    def log_evidence_sd(self) -> float:
        """Its standard deviation to first order, sd / mean."""
        return self.sd / self.mean if self.mean > 0.0 else np.inf

    @property
    def evidence_kind(self) -> str:
        """Neither a bound nor exact."""
        return "approximation"

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The central interval that holds the integral with this probability."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {level!r}")
        return self.belief.quantile(0.5 - 0.5 * level), self.belief.quantile(0.5 + 0.5 * level)

    def __repr__(self) -> str:
        scale = f" × exp({self.log_scale:.6g})" if self.log_scale else ""
        return f"Integral({self.mean:.6g} ± {self.sd:.2g}{scale}, {self.n_evaluations} evaluations)"
