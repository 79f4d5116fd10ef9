"""Whether a model describes its observations: checks, each with one sentence and a remedy, and one verdict of them all.

This is another question than how accurate an approximation is: the accurate posterior of a wrong model misleads too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import binomtest, kurtosistest

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
#: share of their range by which residuals lie off their middle where they are skewed, not only spread far
LOPSIDED = 0.15


@storable
class Check(NamedTuple):
    """One look at a model.

    Attributes
    ----------
    name : str
        dispersion, residuals, slopes, noise, groups, identification, columns, coverage, calibration, baseline,
        predictions, hyperparameters, separation or leakage.
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


class Remedies(NamedTuple):
    """What to do about residuals, in the words of the kind of model.

    Attributes
    ----------
    feature : str
        What the model has of these.
    curve, waves, slopes : str
        Of a pattern along {name}, and of its slope that differs between the levels of {group}.
    far, heavy, skewed, uneven : str
        Of noise: a few rows far off, heavy tails, skew, a spread that grows or falls.
    """

    feature: str
    curve: str
    waves: str
    slopes: str
    far: str
    heavy: str
    skewed: str
    uneven: str


OF_FEATURES = Remedies(
    feature="feature",
    curve="Add a curve: the square of the feature, or a smooth term s({name}) of an additive model",
    waves="Add a smooth term s({name}) of an additive model, or a Gaussian process",
    slopes="Use an additive model with (1 + {name} | {group})",
    far="Look at these rows, or use noise with heavy tails: RobustRegression, --family robust",
    heavy="Use noise with heavy tails: RobustRegression, --family robust",
    skewed="Try a transformation of the target, such as its logarithm where it is positive, or a family for positive "
    "amounts",
    uneven="Look for outliers (--family robust), model the logarithm of the target, or choose a family whose variance "
    "grows with the mean (gamma)",
)


_ROBUST_LOG = "RobustRegression of the logarithm, or --formula with log(…) of the target and --family robust"
#: where the target's logarithm has been modelled already
OF_LOGARITHM = OF_FEATURES._replace(
    far=f"Look at these rows, or use noise with heavy tails: {_ROBUST_LOG}",
    heavy=f"Use noise with heavy tails: {_ROBUST_LOG}",
    skewed="Try another family of positive amounts (gamma, inverse-gaussian)",
    uneven="Look for outliers, or try another family of positive amounts (gamma, inverse-gaussian)",
)


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


def check_coverage(pit: Array, level: float = 0.9, remedies: Remedies | None = None) -> Check:
    """Whether central intervals hold as many held-out rows as they promise.

    Parameters
    ----------
    pit : ndarray of shape (n,)
        Probability integral transforms of held-out rows, randomised where observations are discrete: even on (0, 1)
        if the model is right.
    level : float
        What the intervals promise.
    remedies : Remedies, optional
        Of Gaussian noise; None where the family is another one.
    """
    inside = int(np.sum(np.abs(pit - 0.5) <= 0.5 * level))
    share, p = inside / len(pit), binomtest(inside, len(pit), level).pvalue
    said = f"intervals that promise {100 * level:.0f} % hold {100 * share:.0f} % of {len(pit)} held-out rows"
    if p < CHANCE and abs(share - level) > NEAR:
        if share < level:
            return Check("coverage", False, said, "They are too narrow: choose a family with more variance")
        return Check("coverage", False, said, _too_wide(pit, remedies))
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


def _too_wide(pit: Array, remedies: Remedies | None) -> str:
    """What to do about intervals that hold too many rows: a few rows far off make Gaussian noise seem large."""
    r = ndtri(np.clip(pit, 1e-15, 1.0 - 1e-15))
    r = (r - r.mean()) / max(float(r.std()), 1e-300)
    excess = float(np.mean(r**4) - 3.0)
    if remedies is None or excess < 0.5 or kurtosistest(r).pvalue > CHANCE:
        return "They are too wide: choose a family with less variance or lighter tails"
    why = "They are too wide: most rows lie closer to their prediction than the noise says, because a few"
    if is_lopsided(r):
        side = "above" if np.mean(r**3) > 0.0 else "below"
        return f"{why} far {side} theirs inflate it (skewness {np.mean(r**3):.1f}). {remedies.skewed}"
    return f"{why} rows far off inflate it (excess kurtosis {excess:.1f}). {remedies.heavy}"


def is_lopsided(r: Array) -> bool:
    """Whether residuals are skewed as a whole, which a single far row does not make them.

    (q₉₅ + q₀₅ − 2 q₅₀)/(q₉₅ − q₀₅), and the skewness has the same sign.
    """
    low, middle, high = np.quantile(r, [0.05, 0.5, 0.95])
    off = float((high + low - 2.0 * middle) / max(high - low, 1e-300))
    return abs(off) > LOPSIDED and off * float(np.mean(r**3)) > 0.0


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
