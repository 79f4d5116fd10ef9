"""The integral, its error, and what was evaluated on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from latlin.numerics.arrays import Array
from latlin.quadrature.surrogate import Hyperparameters

# --- The belief about an integral: a mixture of Student-t distributions, one for each set of hyperparameters.
#
# One number has to be its width, the standard deviation; its intervals come from the mixture itself, because a
# small share of belief in a rough integrand doubles the standard deviation long before it moves a quantile.


class ResultMoments(NamedTuple):
    """Shares, locations, squared scales and common degrees of freedom (inf: normal ones) of the parts."""

    weights: Array
    means: Array
    variances: Array
    dof: float

    @classmethod
    def single(cls, mean: float, variance: float, dof: float) -> ResultMoments:
        """Of one part."""
        return cls(np.ones(1), np.array([mean]), np.array([variance]), dof)

    @property
    def mean(self) -> float:
        """Σ w m."""
        return float(self.weights @ self.means)

    @property
    def variance(self) -> float:
        """Σ w (s² + (m − m̄)²): that of the mixture but for the factor dof / (dof − 2) of a Student-t."""
        return float(self.weights @ (self.variances + (self.means - self.mean) ** 2))

    def times(self, scale: float) -> ResultMoments:
        """Those of the integral of scale·f."""
        return self._replace(means=self.means * scale, variances=self.variances * scale**2)

    def quantile(self, p: float) -> float:
        """The number that the integral is below with probability p."""
        scales = np.maximum(np.sqrt(self.variances), np.finfo(float).tiny)
        each = self.means + scales * float(ndtri(p) if np.isinf(self.dof) else stdtrit(self.dof, p))
        low, high = float(each.min()), float(each.max())
        if high - low <= 1e-12 * (abs(low) + abs(high)):
            return low

        def missed(x: float) -> float:
            t = (x - self.means) / scales
            return float(self.weights @ (ndtr(t) if np.isinf(self.dof) else stdtr(self.dof, t))) - p

        # every part is below p at the least of the parts' quantiles and above it at the greatest
        return float(brentq(missed, low, high, xtol=1e-9 * (high - low)))


def pool_results(weights: Array, parts: Sequence[ResultMoments]) -> ResultMoments:
    """The mixture of several beliefs with these shares."""
    shares = np.concatenate([w * part.weights for w, part in zip(weights, parts, strict=True)])
    means, variances = (np.concatenate([getattr(part, name) for part in parts]) for name in ("means", "variances"))
    return ResultMoments(shares, means, variances, parts[0].dof)


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
    belief: ResultMoments = field(repr=False)

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
