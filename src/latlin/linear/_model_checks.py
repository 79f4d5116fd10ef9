"""Whether the observations vary as the family says: Pearson's statistic, and a sentence where they vary more.

With r = (y − μ)/√V of every row, Σ weight r² has mean n − p if the family is right, and the variance of r² is 2 plus
the excess kurtosis of an observation: 1/μ for Poisson counts, 1/V − 6/trials for binomial ones. A sum that lies beyond
what chance allows, and enough so to matter, is told with a remedy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from latlin.distributed.blocks import Block
from latlin.inference.averaged import AveragedModel
from latlin.inference.blocks import BlockModel, Observed, Reading, pieces
from latlin.inference.posterior import Posterior
from latlin.numerics.alerts import MisfitWarning, alert
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential

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

    @property
    def is_over(self) -> bool:
        """Observations vary more than the family and chance allow."""
        return self.whole and self.score > BEYOND and self.ratio > MATTERS

    def words(self, wider: str) -> str:
        """The finding and the remedy; nothing where a family has room for more variance or all is well."""
        if not (wider and self.is_over):
            return ""
        return (
            f"overdispersed: intervals are too narrow; try family='{wider}' (Pearson dispersion {self.ratio:.2f} where "
            f"1 is expected, {self.score:.0f} standard errors above it)"
        )


class Dispersed:
    """`fit` of a family whose variance follows from its mean ends with a look at how the observations vary."""

    _extras: tuple[str, ...] = ("dispersion_", "finding_")

    def _look_back(self: Any) -> None:
        found = dispersion(self._fits[0].posterior)
        self._more_zeros = found.zeros
        self.dispersion_, self.finding_ = found.ratio, found.words(self._family().wider)
        if self.finding_:
            alert(self.finding_, MisfitWarning)

    def __sklearn_tags__(self: Any) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.positive_only = True
        return tags


def dispersion(posterior: Posterior) -> Dispersion:
    """Of the last sites of a posterior's model, at the posterior mean."""
    model: Any = posterior.model.centre if isinstance(posterior.model, AveragedModel) else posterior.model
    if isinstance(model, BlockModel):
        sums = model.blocks.total(_block_sums, model.reading, posterior.mean)
    else:
        site = model.sites[-1]
        sums = _sums(Observed(site.H, site.potential, site.weight, site.offset), posterior.mean)
    statistic, weight, spread, parts, more, chance = sums
    freedom = max(float(weight) - len(posterior.mean), 1.0)
    score = (float(statistic) - freedom) / max(float(np.sqrt(spread)), 1e-300)
    zeros = float(more) / max(float(np.sqrt(chance)), 1e-300)
    return Dispersion(float(statistic) / freedom, score, parts == 0, zeros)


def _block_sums(block: Block, reading: Reading, mean: Array) -> tuple[Any, ...]:
    total = np.zeros(6)
    for observed in pieces(block, reading):
        total += _sums(observed, mean)
    return tuple(total)


def _sums(observed: Observed, mean: Array) -> tuple[float, ...]:
    """Σ weight r², Σ weight, Σ weight var r², observations that are not whole, zeros beyond those expected, and the
    variance of their number."""
    sites, potential = observed.sites, observed.potential
    x = np.asarray(observed.times(mean)) + sites.offset
    described = potential.predictive(x, np.zeros_like(x))
    y = potential.observed
    square = (y - described.mean) ** 2 / described.variance
    spread = 2.0 + _excess(potential, described.mean, described.variance)
    parts = float(np.sum(y != np.floor(y)))
    zero = np.exp(potential.observe(np.zeros_like(y)).log_density(x))
    sums = (square, np.ones_like(x), spread, (y == 0.0) - zero, zero * (1.0 - zero))
    statistic, weight, variance, more, chance = (float(sites.weight @ part) for part in sums)
    return statistic, weight, variance, parts, more, chance


def _excess(potential: Potential, mean: Array, variance: Array) -> Array:
    """Excess kurtosis of an observation of a count family without a dispersion of its own."""
    trials = getattr(potential, "trials", None)
    return 1.0 / mean if trials is None else 1.0 / variance - 6.0 / trials
