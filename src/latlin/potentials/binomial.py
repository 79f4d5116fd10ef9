"""Successes among trials, with a logistic, probit or complementary log-log link."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaln, expit, ndtr

from latlin.numerics import quadrature
from latlin.numerics.options import check_choice, float_array
from latlin.numerics.special import log_ndtr
from latlin.potentials import strip
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import check_trials
from latlin.potentials.complementary import STRIP, LogComplement
from latlin.potentials.exponentials import Exponentials, ExponentialTerm, Walled
from latlin.potentials.predictive import CountPredictive, Predictive
from latlin.potentials.probit import STRIP as PROBIT_STRIP
from latlin.potentials.probit import Probit, log_ndtr_derivatives
from latlin.potentials.sigmoids import Sigmoids

LINKS = ("logit", "probit", "cloglog")


class Binomial(Potential):
    """φ(x) = (trials choose successes) p^successes (1 − p)^{trials − successes}.

    Parameters
    ----------
    successes : array_like of shape (sites,) or scalar
        Whole numbers from 0 to `trials`.
    trials : array_like of shape (sites,) or scalar
        Whole numbers from 1.
    link : {"logit", "probit", "cloglog"}
        p = σ(x), p = Φ(x) or p = 1 − exp(−e^x).

    Examples
    --------
    >>> sites = Binomial([3, 0], [10, 4])
    >>> sites.log_density([-1.0, -1.0]).round(4).tolist()
    [-1.3451, -1.253]
    >>> sites.predictive([-1.0, -1.0], 0.5).mean.round(4).tolist()
    [2.8843, 1.1537]
    """

    parameters = ("successes", "trials", "link")
    arrays = ("successes", "trials")
    observation = ("successes", 0.0)
    log_concave = True

    successes: Array
    trials: Array
    link: str

    def __init__(self, successes: ArrayLike, trials: ArrayLike, link: str = "logit") -> None:
        check_choice("link", link, LINKS)
        y, n = check_trials(successes, trials)
        self._store(successes=y, trials=n, link=link, super_gaussian=link == "logit", natural=link == "logit")

    def _log_choices(self) -> Array:
        return log_choices(self.successes, self.trials)

    def _form(self) -> Sigmoids | Walled:
        """ψ in a shape whose expectations are known; the probit link has none."""
        return self._once("form", self._known_form)

    def _known_form(self) -> Sigmoids | Walled:
        failures, zero, one = self.trials - self.successes, np.zeros(()), np.ones(())
        if self.link == "logit":
            return Sigmoids(self._log_choices(), self.successes, failures, zero, one)
        with np.errstate(divide="ignore"):
            wall = Exponentials(self._log_choices(), zero, (ExponentialTerm(np.log(failures), one),))
        return Walled(wall, LogComplement(self.successes, zero, one))

    def log_density(self, x: ArrayLike) -> Array:
        x = float_array("x", x)
        if self.link != "probit":
            return self._form().log_density(x)
        up = np.where(self.successes > 0, self.successes * log_ndtr(x), 0.0)
        failures = self.trials - self.successes
        return self._log_choices() + up + np.where(failures > 0, failures * log_ndtr(-x), 0.0)

    def derivatives(self, x: ArrayLike) -> Derivatives:
        x = float_array("x", x)
        if self.link != "probit":
            return self._form().derivatives(x)
        k, n = self.successes, self.trials - self.successes
        up, down = log_ndtr_derivatives(x), log_ndtr_derivatives(-x)
        return Derivatives(k * up[0] - n * down[0], k * up[1] + n * down[1], k * up[2] - n * down[2])

    def _expansion(self, x: Array) -> tuple[Array, Array, Array]:
        form = None if self.link == "probit" else self._form()
        return form.expansion(x)[:3] if isinstance(form, Sigmoids) else super()._expansion(x)

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        one = np.ones(())
        if self.link != "cloglog":
            return ((np.zeros(()), one),)
        # a wall of failures, and a bend where one event is likely
        return ((np.zeros(()), one), (-np.log(np.maximum(self.trials - self.successes, 1.0)), one))

    @property
    def strip(self) -> float:
        return {"logit": np.pi, "probit": PROBIT_STRIP, "cloglog": STRIP}[self.link]

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        if self.link != "probit":
            return self._form().expected_log(m, v)
        parts = [np.array(Probit(side)._expected_log(m, v)) for side in (1, 0)]
        value, d_mean, d_var = self.successes * parts[0] + (self.trials - self.successes) * parts[1]
        return ExpectedLog(value + self._log_choices(), d_mean, d_var)

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        form = self._form()
        if isinstance(form, Sigmoids):
            return form.tilted_moments(self, m, v, power)
        if self.link == "probit":
            return strip.tilted_moments(self, m, v, power, strip=PROBIT_STRIP, curvature=self.trials)
        return form.tilted_moments(self, m, v, power)

    def _remainder(self, x: Array, d: Array) -> Array:
        form = self._form()
        return form.remainder(x, d) if isinstance(form, Walled) else super()._remainder(x, d)

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        form: Any = self._form()
        return form.quadratic_bound(xi)

    def probability(self, x: Array) -> Array:
        """The chance of a success given x."""
        if self.link == "cloglog":
            return np.asarray(-np.expm1(-np.exp(np.minimum(x, 700.0))))
        return np.asarray(expit(x) if self.link == "logit" else ndtr(x))

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        first, second = self._in_blocks(_probability_moments, m, v) if np.any(v) else _point_moments(self, m)
        n = self.trials
        # var y = n⟨p(1 − p)⟩ + n² var p
        spread = n * (first - second) + n * n * np.maximum(second - first * first, 0.0)
        return CountPredictive(self, m, v, shape, n * first, spread, n)

    def _sharpness(self) -> Array:
        return self.successes + 1.0 if self.link == "logit" else self.trials + 1.0

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        return rng.binomial(self.trials.astype(np.int64), self.probability(x)).astype(float)

    def _mode_start(self, m: Array, v: Array, power: Array) -> Array:
        form = self._form()
        return form.wall._mode(m, v, power) if isinstance(form, Walled) else m

    def _conditional_moments(self, x: Array) -> tuple[Array, Array]:
        p, n = self.probability(x), self.trials
        return n * p, n * p * (1 - p) + (n * p) ** 2

    def _conditional_cdf(self, x: Array) -> Array:
        """P(new count ≤ successes | x) = I_{1−p}(trials − successes, successes + 1)."""
        left = np.maximum(self.trials - self.successes, 1.0)
        value = betainc(left, self.successes + 1.0, 1.0 - self.probability(x))
        return np.where(self.successes >= self.trials, 1.0, value)


def log_choices(k: Array, n: Array) -> Array:
    """log (n choose k)."""
    return np.asarray(-np.log1p(n) - betaln(n - k + 1, k + 1))


def _point_moments(block: Binomial, x: Array) -> tuple[Array, Array]:
    """p and p² at x."""
    p = block.probability(x)
    return p, p * p


def _probability_moments(block: Binomial, m: Array, v: Array) -> tuple[Array, Array]:
    """⟨p⟩ and ⟨p²⟩."""
    x, _, w = quadrature.gaussian_nodes(m, np.sqrt(v), block.regions())
    p = block.probability(x)
    return np.einsum("ks,ks->s", w, p), np.einsum("ks,ks->s", w, p * p)
