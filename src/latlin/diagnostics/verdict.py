"""A verdict in words: accurate, rough or wrong, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import ndtri

from latlin.diagnostics.weights import LARGEST_K, CorrectedMoments, LargestMoves
from latlin.numerics.arrays import Array

Word = Literal["accurate", "rough", "wrong"]

#: from good to bad
WORDS: tuple[Word, ...] = ("accurate", "rough", "wrong")
#: a mean off by more sd, or a ratio of sd outside, is not accurate; and by how much it is wrong
MEAN_OFF, MEAN_FAR = 0.3, 1.0
RATIO_OFF, RATIO_FAR = 1.4, 2.0
#: standard errors by which a corrected moment may be wrong
MARGIN = 2.5
#: effective draws below which the corrections themselves say little
FEWEST_EFFECTIVE = 100.0
#: effective share of draws above which weights hardly vary
EVEN = 0.8
#: first-order movement of the log of a variance that is too much
LEAN = 0.7


class Verdict(NamedTuple):
    """The word, and the reason in a sentence."""

    word: Word
    reason: str


def certainty(dim: int) -> float:
    """Standard errors that the noisiest of `dim` coordinates exceeds in one case of two hundred."""
    return float(ndtri(1.0 - 0.0025 / dim))


class Gap(NamedTuple):
    """How far an approximation is from the corrected moments, coordinate by coordinate.

    Differences of means in corrected sd, logs of the ratios sd of q / corrected sd, and what each may be wrong by.
    """

    mean: Array
    mean_margin: Array
    log_ratio: Array
    ratio_margin: Array
    names: Sequence[str] | None = None

    @property
    def largest(self) -> tuple[float, float]:
        """Mean and |log ratio| as large as the errors allow."""
        return float(np.max(self.mean + self.mean_margin)), float(np.max(np.abs(self.log_ratio) + self.ratio_margin))

    @property
    def certain(self) -> tuple[float, float]:
        """Mean and |log ratio| that are certain, although the worst of many coordinates was picked."""
        more = certainty(len(self.mean)) / MARGIN
        ratio = np.abs(self.log_ratio) - more * self.ratio_margin
        return float(np.max(self.mean - more * self.mean_margin)), float(np.max(ratio))

    def sentence(self) -> str:
        """The worst coordinates."""
        i, j = int(np.argmax(self.mean + self.mean_margin)), int(np.argmax(np.abs(self.log_ratio) + self.ratio_margin))
        low, high = np.exp(self.log_ratio[j] + self.ratio_margin[j] * np.array([-1.0, 1.0]))
        off = self.mean[i] > MEAN_OFF or abs(self.log_ratio[j]) > np.log(RATIO_OFF)
        return ("" if off else "so few draws cannot exclude it (raise n): ") + (
            f"against the corrected moments the mean of {self._name(i)} is off by {self.mean[i]:.2g} ± "
            f"{self.mean_margin[i]:.1g} sd, and the sd of {self._name(j)} by a factor {np.exp(self.log_ratio[j]):.2g} "
            f"({low:.2g} to {high:.2g})"
        )

    def _name(self, place: int) -> str:
        return f"coordinate {place}" if self.names is None else repr(str(self.names[place]))


def moment_gap(mean: Array, variance: Array, corrected: CorrectedMoments, names: Sequence[str] | None = None) -> Gap:
    """Compare means and standard deviations of q with the corrected ones; `names` are those of the coordinates."""
    sd = np.sqrt(corrected.variance)
    return Gap(
        np.abs(mean - corrected.mean) / sd,
        MARGIN * corrected.mean_error / sd,
        0.5 * np.log(variance / corrected.variance),
        MARGIN * 0.5 * corrected.variance_error / corrected.variance,
        names,
    )


class Findings(NamedTuple):
    """What the verdict is made of.

    `even` is the effective share of the posterior's own draws; `divergence` what KL(q‖p) is at least, in nat a
    coordinate.
    """

    k_hat: float
    even: float
    corrected_k_hat: float
    corrected_ess: float
    gap: Gap
    converged: bool
    below_own_bound: bool
    response: LargestMoves
    divergence: float = 0.0


def judge(found: Findings) -> Verdict:
    """The first rule that applies decides."""
    sure = found.corrected_k_hat <= LARGEST_K and found.corrected_ess >= FEWEST_EFFECTIVE
    mean, ratio = found.gap.largest
    mean_certain, ratio_certain = found.gap.certain
    if sure and (mean_certain > MEAN_FAR or ratio_certain > np.log(RATIO_FAR)):
        return Verdict("wrong", found.gap.sentence())
    if found.below_own_bound:
        return Verdict("wrong", "the draws miss mass that the engine's own lower bound proves to be there")
    lean = found.response
    if not sure and (lean.mean > MEAN_FAR or lean.log_variance > LEAN):
        return Verdict("wrong", f"{_weights(found)}, and they lean: it is misplaced, too wide or too narrow")
    # means that are all off by MEAN_FAR sd have a divergence of ½ MEAN_FAR² each
    if not sure and found.divergence > 0.5 * MEAN_FAR**2:
        return Verdict("wrong", f"{_weights(found)}; KL(q‖p) is above {found.divergence:.2g} nat per coordinate")
    if sure and (mean > MEAN_OFF or ratio > np.log(RATIO_OFF)):
        return Verdict("rough", found.gap.sentence())
    if not sure:
        return Verdict("rough", f"{_weights(found)}, so that its moments cannot be checked")
    # the tail of weights that hardly vary has a shape, but no consequence
    if found.k_hat > LARGEST_K and found.even < EVEN:
        return Verdict("rough", f"{_weights(found)}, although means and standard deviations agree")
    if not found.converged:
        return Verdict("rough", "the fit did not converge, although its moments agree with the corrected ones")
    weights = f"k̂ = {found.k_hat:.2f}" if found.k_hat <= LARGEST_K else f"{found.even:.0%} of the draws count"
    return Verdict("accurate", f"{weights}, and means and standard deviations agree with the corrected ones")


def cautioned(verdict: Verdict, caution: tuple[str, str] | None) -> Verdict:
    """The worse of a verdict and of what was known before any draw, such as an optimum at an end of its search."""
    if caution is None or WORDS.index(verdict.word) >= WORDS.index(caution[0]):
        return verdict
    return Verdict(WORDS[WORDS.index(caution[0])], caution[1])


def _weights(found: Findings) -> str:
    if found.k_hat > LARGEST_K:
        return f"k̂ = {found.k_hat:.2f} is above {LARGEST_K}: the weights of draws are too uneven"
    if found.corrected_k_hat > LARGEST_K:
        return f"wider draws find weights with k̂ = {found.corrected_k_hat:.2f}: there is mass that draws hardly cover"
    return f"only {found.corrected_ess:.0f} effective draws: raise n"
