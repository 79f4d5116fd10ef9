"""Whether a model describes its observations: checks, each with one sentence and a remedy, and one verdict of them all.

This is another question than how accurate an approximation is: the accurate posterior of a wrong model misleads too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable

ModelWord = Literal["fits", "does not fit"]
#: standard errors, and the matching probability, beyond which a finding is not chance
BEYOND, CHANCE = 3.0, 0.0027
#: a share of intervals this near to the one promised does not matter, however many rows there are
NEAR = 0.02
#: standard errors beyond which features clearly improve predictions
GAIN = 2.0
#: nat, of all rows together, that features must lose to make predictions clearly worse
LOSS = 4.0
#: R² below minus this shows predictions that are far off
FAR_OFF = 0.5


@storable
class Check(NamedTuple):
    """One look at a model.

    Attributes
    ----------
    name : str
        dispersion, residuals, noise, coverage, calibration, baseline, predictions, hyperparameters, separation or
        leakage.
    passed : bool
    sentence : str
        What was found.
    remedy : str
        What to do about it; empty where nothing is wrong. A check that was passed with a remedy is a caution.
    """

    name: str
    passed: bool
    sentence: str
    remedy: str = ""

    @property
    def is_caution(self) -> bool:
        """Whether the model may be right, but its numbers should be read with care."""
        return self.passed and bool(self.remedy)

    def __str__(self) -> str:
        return f"{self.sentence[0].upper()}{self.sentence[1:]}." + (f" {self.remedy}." if self.remedy else "")


@storable
class ModelChecks(NamedTuple):
    """All checks that could be made, and what they say together.

    Examples
    --------
    >>> found = ModelChecks((Check("baseline", False, "the features do not help", "Add others"),))
    >>> found.verdict
    'does not fit'
    >>> print(found)
    Model: does not fit. The features do not help. Add others.
    """

    checks: tuple[Check, ...] = ()

    @property
    def verdict(self) -> ModelWord:
        """Whether every check was passed."""
        return "does not fit" if self.failed else "fits"

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.passed)

    @property
    def cautions(self) -> tuple[Check, ...]:
        """Checks that were passed and still tell how to read the model."""
        return tuple(check for check in self.checks if check.is_caution)

    @property
    def effects_caution(self) -> str:
        """What a misfit does to effects; nothing where the model fits."""
        return "The model does not fit: read these effects with care." if self.failed else ""

    def including(self, others: Iterable[Check]) -> ModelChecks:
        """With further checks, which replace earlier ones of the same name."""
        added = tuple(others)
        names = {check.name for check in added}
        return ModelChecks((*(check for check in self.checks if check.name not in names), *added))

    def __str__(self) -> str:
        if self.failed:
            return f"Model: {self.verdict}. {' '.join(map(str, (*self.failed, *self.cautions)))}"
        looked = ", ".join(dict.fromkeys(check.name for check in self.checks))
        said = f"Model: {self.verdict}" + (f" (checked: {looked})" if looked else "")
        return ". ".join([said, "Be careful", " ".join(map(str, self.cautions))]) if self.cautions else said


def check_baseline(gain: float, error: float, rows: int, what: str = "the features", without: str = "") -> Check:
    """Whether rows that were held out are predicted better with the features than without.

    A model whose features help little, or not at all, may well be right, so that a difference within its error is a
    caution. Features that clearly predict worse fail the check.

    Parameters
    ----------
    gain, error : float
        Mean difference of log predictive densities per row, and its standard error.
    rows : int
        How many were held out. A loss of few nat in all is what needless features cost, and its error is too small
        (Sivula et al., 2020).
    what, without : str
        In words, what predicts, and what predicts without it.
    """
    said = f"{gain:+.3f} ± {error:.3f} in log probability per held-out row"
    if gain > GAIN * error:
        return Check("baseline", True, f"{what} predict better than {without or 'a model without them'} ({said})")
    if is_loss(gain, error, rows):
        return Check(
            "baseline",
            False,
            f"{what} predict worse than {without or 'a model that ignores them'} ({said})",
            "Do not use these predictions; look for another family, other features or more rows",
        )
    return Check(
        "baseline",
        True,
        f"{what} do not clearly predict better than {without or 'a model that ignores them'} ({said})",
        "Read single coefficients with care; other features or more rows may help",
    )


def is_loss(gain: float, error: float, rows: int) -> bool:
    """Whether features clearly make predictions worse."""
    return gain < -BEYOND * error and rows * gain < -LOSS


def check_predictions(y: Array, mean: Array, without: Array | float | None = None) -> Check:
    """Whether point predictions of held-out rows are nearer than those `without` features: a few may be far off.

    Without features, all rows are predicted by their mean unless other predictions are given.
    """
    wrong = (y - mean) ** 2
    explained = 1.0 - float(wrong.sum() / np.sum((y - (y.mean() if without is None else without)) ** 2))
    if explained > -FAR_OFF:
        return Check("predictions", True, f"predictions of held-out rows are not far off (R² = {explained:.2f})")
    worst = int(np.argmax(wrong))
    return Check(
        "predictions",
        True,
        f"some held-out rows are predicted far off, the farthest by {mean[worst]:.4g} where {y[worst]:.4g} was "
        f"observed (R² = {explained:.2f})",
        "Look for extreme values among the features, and take their logarithms",
    )


def check_coverage(pit: Array, level: float = 0.9) -> Check:
    """Whether central intervals hold as many held-out rows as they promise.

    Parameters
    ----------
    pit : ndarray of shape (n,)
        Probability integral transforms of held-out rows, randomised where observations are discrete: even on (0, 1)
        if the model is right.
    level : float
        What the intervals promise.
    """
    inside = int(np.sum(np.abs(pit - 0.5) <= 0.5 * level))
    share, p = inside / len(pit), binomtest(inside, len(pit), level).pvalue
    said = f"intervals that promise {100 * level:.0f} % hold {100 * share:.0f} % of {len(pit)} held-out rows"
    if p < CHANCE and abs(share - level) > NEAR:
        if share < level:
            return Check("coverage", False, said, "They are too narrow: choose a family with more variance")
        return Check("coverage", False, said, "They are too wide: choose a family with less variance or lighter tails")
    p_even, where = _evenness(pit)
    if p_even < CHANCE and abs(where) > NEAR:
        side = "high" if where < 0.0 else "low"
        return Check(
            "coverage",
            False,
            f"{said}, but predictions are {side} too often (the median of new rows lies at the "
            f"{100 * (0.5 + where):.0f} % point of their predictions)",
            "Try another family, or a transformation of the target or of the features",
        )
    return Check("coverage", True, said)


def check_quantile(below: NDArray[np.bool_], level: float) -> Check:
    """Whether as many held-out rows lie below their predicted quantile as should.

    Parameters
    ----------
    below : ndarray of bool, shape (n,)
    level : float
        The share that should.
    """
    count = int(np.sum(below))
    share, p = count / len(below), binomtest(count, len(below), level).pvalue
    said = f"{100 * share:.0f} % of {len(below)} held-out rows lie below their quantile, and {100 * level:g} % should"
    if p < CHANCE and abs(share - level) > NEAR:
        side = "high" if share > level else "low"
        return Check(
            "coverage", False, said, f"It is too {side}: try other features, or a transformation of the target"
        )
    return Check("coverage", True, said)


def _evenness(pit: Array) -> tuple[float, float]:
    """Probability of as many rows on one side of their medians, and how far the middle is off."""
    above = int(np.sum(pit > 0.5))
    return float(binomtest(above, len(pit), 0.5).pvalue), float(np.median(pit) - 0.5)


def check_calibration(happened: Array, probability: Array) -> Check:
    """Whether events come as often as their probabilities say: Spiegelhalter's statistic.

    Z = Σ (y − p)(1 − 2p) / √(Σ (1 − 2p)² p (1 − p)), standard normal if the probabilities are right.
    """
    y, p = np.asarray(happened, float), np.clip(np.asarray(probability, float), 1e-12, 1.0 - 1e-12)
    spread = float(np.sum((1.0 - 2.0 * p) ** 2 * p * (1.0 - p)))
    z = float(np.sum((y - p) * (1.0 - 2.0 * p))) / max(np.sqrt(spread), 1e-12)
    often = f"predicted {100 * p.mean():.1f} % on average, observed {100 * y.mean():.1f} %"
    if abs(z) <= BEYOND:
        return Check("calibration", True, f"probabilities of held-out rows agree with what happened ({often})")
    extreme = "too extreme" if z > 0.0 else "not extreme enough"
    return Check(
        "calibration",
        False,
        f"probabilities of held-out rows are {extreme} ({often}; {abs(z):.1f} standard errors)",
        "Read the calibration plot before you use the probabilities; add features, interactions or another link",
    )
