"""Whether observations vary as their family says: Pearson's statistic.

With r = (y − μ)/√V of every row, Σ weight r² has mean n − p if the family is right; p is how many parameters the
observations have determined. The variance of r² is 2 plus the excess kurtosis of an observation: 1/μ for Poisson
counts, 1/V − 6/trials for binomial ones; of Poisson counts with zeros of their own it follows below. A sum that lies
beyond what chance allows, and enough so to matter, is reported with a remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from latlin.diagnostics.model_checks import Check
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential
from latlin.potentials.poisson import Poisson

#: standard errors beyond which the statistic is not chance, and the least share of extra variance worth a word
BEYOND, MATTERS = 3.0, 1.1


class Dispersion(NamedTuple):
    """Pearson's statistic per degree of freedom, one for a family that is right, and standard errors above one.

    Averaged counts, which are not whole, vary less than counts do: of them nothing is said. `zeros` is by how many
    standard errors there are more zeros than the family expects.
    """

    ratio: float
    score: float
    whole: bool = True
    zeros: float = 0.0

    @classmethod
    def of(cls, sums: Sequence[float], parameters: float) -> Dispersion:
        """From the sums of `pearson_sums`, and how many parameters the observations have determined."""
        statistic, weight, spread, parts, more, chance = (float(part) for part in sums)
        freedom = max(weight - parameters, 1.0)
        score = (statistic - freedom) / max(np.sqrt(spread), 1e-300)
        return cls(statistic / freedom, score, parts == 0, more / max(np.sqrt(chance), 1e-300))

    @property
    def is_over(self) -> bool:
        """Observations vary more than the family and chance allow."""
        return self.whole and self.score > BEYOND and self.ratio > MATTERS

    def check(self, wider: str) -> Check:
        """Whether observations vary as the family says."""
        said = f"Pearson dispersion {self.ratio:.2f} where 1 is expected"
        if self.is_over:
            remedy = f"Intervals are too narrow: try the family {wider}" if wider else "Intervals are too narrow"
            return Check(
                "dispersion",
                False,
                f"observations are overdispersed: they vary more than the family allows ({said})",
                remedy,
            )
        return Check("dispersion", True, f"observations do not vary more than the family allows ({said})")

    def words(self, wider: str, option: str = "family") -> str:
        """The finding and the remedy; nothing where a family has room for more variance or all is well."""
        if not (wider and self.is_over):
            return ""
        return (
            f"overdispersed: intervals are too narrow; try {option}='{wider}' (Pearson dispersion {self.ratio:.2f} "
            f"where 1 is expected, {self.score:.0f} standard errors above it)"
        )


def pearson_sums(potential: Potential, x: Array, weight: Array) -> tuple[float, ...]:
    """Σ weight r², Σ weight, Σ weight var r², observations that are not whole, zeros beyond those expected, and the
    variance of their number, at the linear predictors x."""
    described = potential.predictive(x, np.zeros_like(x))
    y = potential.observed
    square = (y - described.mean) ** 2 / described.variance
    spread = 2.0 + _excess(potential, x, described.mean, described.variance)
    parts = float(np.sum(y != np.floor(y)))
    zero = np.exp(potential.observe(np.zeros_like(y)).log_density(x))
    sums = (square, np.ones_like(x), spread, (y == 0.0) - zero, zero * (1.0 - zero))
    statistic, total, variance, more, chance = (float(weight @ part) for part in sums)
    return statistic, total, variance, parts, more, chance


def dispersion_about(potential: Potential, mean: Array, variance: Array, weight: Array | None = None) -> Dispersion:
    """Of sites whose linear predictors have these moments; Σ weight W_n S_nn parameters have been determined."""
    weight = np.ones_like(mean) if weight is None else weight
    determined = float(weight @ np.clip(-potential.derivatives(mean).second * variance, 0.0, 1.0))
    return Dispersion.of(pearson_sums(potential, mean, weight), determined)


def _excess(potential: Potential, x: Array, mean: Array, variance: Array) -> Array:
    """Excess kurtosis of an observation of a count family without a dispersion of its own."""
    if (trials := getattr(potential, "trials", None)) is not None:
        return 1.0 / variance - 6.0 / trials
    if not isinstance(getattr(potential, "base", None), Poisson):
        return 1.0 / mean
    # a share s = μ/λ of Poisson counts of mean λ, otherwise zero: ⟨(y − μ)⁴⟩ = s⟨(k − μ)⁴⟩ + (1 − s)μ⁴, where
    # ⟨(k − μ)⁴⟩ = λ + 3λ² + 4λδ + 6λδ² + δ⁴ with δ = λ − μ
    rate = np.exp(x)
    share, apart = mean / rate, rate - mean
    poisson = rate * (1.0 + 3.0 * rate + 4.0 * apart + 6.0 * apart**2) + apart**4
    return np.asarray((share * poisson + (1.0 - share) * mean**4) / variance**2 - 3.0)
