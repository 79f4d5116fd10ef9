"""Every family of potentials with its log density written once more, in mpmath, and 30-digit integrals of that.

`TABLE` lists every family with two or more settings. The integrals take minutes, so they are kept in
`potentials/references/<row>.npz`; after adding or changing a row run

    python tests/potential_table.py [row ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import mpmath as mp
import numpy as np

from latlin import potentials
from latlin.potentials import Potential

REFERENCES = Path(__file__).parent / "potentials" / "references"
MEANS = (-50.0, -3.0, 0.4, 17.0, 50.0)
SDS = (1e-6, 1e-3, 0.1, 1.0, 7.0, 100.0)
POWERS = (1.0, 0.5)
#: 30 remain after the cancellation in the derivatives
DIGITS = 45


@dataclass(frozen=True)
class Row:
    """A family at one setting: its constructor, its log density in mpmath, and where that bends or has a kink."""

    name: str
    make: Callable[[], Potential]
    log_density: Callable[[mp.mpf], mp.mpf]
    bends: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    #: halvings of the reference's panels towards a bend; many where log φ has an algebraic singularity
    halvings: int = 2
    sds: tuple[float, ...] = SDS
    #: how far ⟨ψ⟩ is integrated, in standard deviations
    reach: Callable[[float], float] = lambda sd: 14.0
    #: agreement asked of closed forms and the quadrature default (at moderate sd)
    default: float = 1e-8
    #: the ends of a box: there is no expected log, no derivative to speak of, and the tilted moments are closed
    box: tuple[float, float] | None = None

    def points(self) -> list[tuple[float, float]]:
        return [(mean, sd) for sd in self.sds for mean in MEANS]


def _logit(t: mp.mpf) -> mp.mpf:
    return -mp.log1p(mp.exp(-t)) if t > 0 else t - mp.log1p(mp.exp(t))


def _between(a: mp.mpf, b: mp.mpf) -> mp.mpf:
    """log(Φ(b) − Φ(a)), on the side where Φ is small."""
    return mp.log(mp.ncdf(b) - mp.ncdf(a)) if a + b < 0 else mp.log(mp.ncdf(-a) - mp.ncdf(-b))


def _logistic(loc: float, scale: float) -> Callable[[mp.mpf], mp.mpf]:
    return lambda x: _logit((x - loc) / scale) + _logit(-(x - loc) / scale) - mp.log(scale)


def _poisson(y: int) -> Callable[[mp.mpf], mp.mpf]:
    return lambda x: y * x - mp.exp(x) - mp.loggamma(y + 1)


def _gaussian(loc: float, scale: float) -> Callable[[mp.mpf], mp.mpf]:
    return lambda x: -(((x - loc) / scale) ** 2) / 2 - mp.log(scale * mp.sqrt(2 * mp.pi))


def _student(df: float, loc: float, scale: float) -> Callable[[mp.mpf], mp.mpf]:
    half = mp.mpf(df + 1) / 2

    def log_density(x: mp.mpf) -> mp.mpf:
        constant = mp.loggamma(half) - mp.loggamma(half - 0.5) - mp.log(df * mp.pi) / 2 - mp.log(scale)
        return constant - half * mp.log1p(((x - loc) / scale) ** 2 / df)

    return log_density


def _generalised(shape: float, loc: float, scale: float) -> Callable[[mp.mpf], mp.mpf]:
    return lambda x: mp.log(shape / (2 * scale * mp.gamma(1 / mp.mpf(shape)))) - abs((x - loc) / scale) ** shape


def _mixture(*components: tuple[float, float, float]) -> Callable[[mp.mpf], mp.mpf]:
    """Components (weight, loc, scale)."""

    def log_density(x: mp.mpf) -> mp.mpf:
        logs = [mp.log(weight) + _gaussian(loc, scale)(x) for weight, loc, scale in components]
        return max(logs) + mp.log(mp.fsum(mp.exp(part - max(logs)) for part in logs))

    return log_density


def _binomial(k: int, n: int, log_p: Callable[[mp.mpf], mp.mpf], log_q: Callable[[mp.mpf], mp.mpf]):
    return lambda x: mp.log(mp.binomial(n, k)) + (k * log_p(x) if k else 0) + ((n - k) * log_q(x) if n > k else 0)


def _log_event(x: mp.mpf) -> mp.mpf:
    """log(1 − exp(−e^x))."""
    return mp.log(-mp.expm1(-mp.exp(x)))


def _log_rising(r: mp.mpf, y: int) -> mp.mpf:
    """log r(r + 1) … (r + y − 1)."""
    return mp.fsum(mp.log(r + j) for j in range(y))


def _negative_binomial(y: int, a: float) -> Callable[[mp.mpf], mp.mpf]:
    constant = _log_rising(1 / mp.mpf(a), y) - mp.loggamma(y + 1)
    return lambda x: constant + y * _logit(x + mp.log(a)) + _logit(-x - mp.log(a)) / a


def _linear_negative_binomial(y: int, a: float) -> Callable[[mp.mpf], mp.mpf]:
    def log_density(x: mp.mpf) -> mp.mpf:
        r = mp.exp(x) / a
        return _log_rising(r, y) + y * mp.log(a / (1 + mp.mpf(a))) - mp.loggamma(y + 1) - r * mp.log1p(a)

    return log_density


def _gamma(y: float, a: float) -> Callable[[mp.mpf], mp.mpf]:
    constant = a * mp.log(a) - mp.loggamma(a) + (a - 1) * mp.log(y)
    return lambda x: constant - a * x - a * y * mp.exp(-x)


def _inverse_gaussian(y: float, shape: float) -> Callable[[mp.mpf], mp.mpf]:
    constant = mp.log(shape / (2 * mp.pi * mp.mpf(y) ** 3)) / 2
    return lambda x: constant - shape * (y - mp.exp(x)) ** 2 / (2 * mp.exp(2 * x) * y)


def _weibull(kind: int, k: float, time: float, upper: float = 0.0) -> Callable[[mp.mpf], mp.mpf]:
    def hazard(t: float, x: mp.mpf) -> mp.mpf:
        return (t * mp.exp(-x)) ** mp.mpf(k)

    def log_density(x: mp.mpf) -> mp.mpf:
        h = hazard(time, x)
        if kind == 1:
            return mp.log(k) - mp.log(time) + mp.log(h) - h
        if kind == 0:
            return -h
        return mp.log(-mp.expm1(-h)) if kind == 2 else -h + mp.log(-mp.expm1(h - hazard(upper, x)))

    return log_density


def _log_logistic(kind: int, k: float, time: float, upper: float = 0.0) -> Callable[[mp.mpf], mp.mpf]:
    def log_density(x: mp.mpf) -> mp.mpf:
        w = k * (mp.log(time) - x)
        if kind == 1:
            return mp.log(k / mp.mpf(time)) + _logit(w) + _logit(-w)
        if kind == 0:
            return _logit(-w)
        end = k * (mp.log(upper or time) - x)
        return _logit(end) + (_logit(-w) + mp.log(-mp.expm1(w - end)) if kind == 3 else 0)

    return log_density


def _tweedie(y: float, p: float, phi: float) -> Callable[[mp.mpf], mp.mpf]:
    """The normaliser as a compound Poisson sum at x = 0, where everything but a(y) is known."""
    p, phi = mp.mpf(p), mp.mpf(phi)
    rate, shape, scale = 1 / (phi * (2 - p)), (2 - p) / (p - 1), phi * (p - 1)

    def part(j: mp.mpf) -> mp.mpf:
        gamma = (j * shape - 1) * mp.log(y) - y / scale - j * shape * mp.log(scale) - mp.loggamma(j * shape)
        return mp.exp(-rate + j * mp.log(rate) - mp.loggamma(j + 1) + gamma)

    with mp.workdps(DIGITS):
        density = mp.nsum(part, [1, 400], method="direct") if y else mp.exp(-rate)
        constant = mp.log(density) - (y / (1 - p) - 1 / (2 - p)) / phi
    return lambda x: constant + (y * mp.exp((1 - p) * x) / (1 - p) - mp.exp((2 - p) * x) / (2 - p)) / phi


def _beta(y: float, s: float) -> Callable[[mp.mpf], mp.mpf]:
    def log_density(x: mp.mpf) -> mp.mpf:
        a, b = s / (1 + mp.exp(-x)), s / (1 + mp.exp(x))
        ends = mp.loggamma(s) - mp.loggamma(a) - mp.loggamma(b)
        return ends + (a - 1) * mp.log(y) + (b - 1) * mp.log(1 - mp.mpf(y))

    return log_density


def _beta_binomial(k: int, n: int, s: float) -> Callable[[mp.mpf], mp.mpf]:
    def log_density(x: mp.mpf) -> mp.mpf:
        up, down = _log_rising(s / (1 + mp.exp(-x)), k), _log_rising(s / (1 + mp.exp(x)), n - k)
        return mp.log(mp.binomial(n, k)) + up + down - _log_rising(mp.mpf(s), n)

    return log_density


def _asymmetric(tau: float, loc: float, scale: float) -> Callable[[mp.mpf], mp.mpf]:
    constant = mp.log(tau * (1 - mp.mpf(tau)) / scale)
    return lambda x: constant - (loc - x) / scale * (tau - (1 if x > loc else 0))


def _huber(loc: float, scale: float, c: float) -> Callable[[mp.mpf], mp.mpf]:
    c = mp.mpf(c)

    def log_density(x: mp.mpf) -> mp.mpf:
        mass = mp.sqrt(2 * mp.pi) * mp.erf(c / mp.sqrt(2)) + 2 * mp.exp(-c * c / 2) / c
        r = abs(x - loc) / scale
        return -mp.log(scale * mass) - (r * r / 2 if r <= c else c * r - c * c / 2)

    return log_density


def _zero_inflated(probability: float, base: Callable[[mp.mpf], mp.mpf]) -> Callable[[mp.mpf], mp.mpf]:
    return lambda x: mp.log(probability + (1 - mp.mpf(probability)) * mp.exp(base(x)))


def _hurdle(probability: float, base: Callable[[mp.mpf], mp.mpf], zero: Callable[[mp.mpf], mp.mpf]):
    return lambda x: mp.log(1 - mp.mpf(probability)) + base(x) - mp.log(-mp.expm1(zero(x)))


def _horseshoe(loc: float, scale: float) -> Callable[[mp.mpf], mp.mpf]:
    def log_density(x: mp.mpf) -> mp.mpf:
        u = ((x - loc) / scale) ** 2 / 2
        # e^u E₁(u) = U(1, 1, u)
        return -mp.log(2 * mp.pi**3) / 2 - mp.log(scale) + (mp.log(mp.e1(u)) + u if u < 1000 else _log_tail(u))

    return log_density


def _log_tail(u: mp.mpf) -> mp.mpf:
    """log e^u E₁(u) by its asymptotic series, from u = 1000 on."""
    return mp.log(mp.fsum((-1) ** k * mp.factorial(k) / u**k for k in range(40)) / u)


def _truncated(y: float, scale: float, low: float, high: float) -> Callable[[mp.mpf], mp.mpf]:
    def log_density(x: mp.mpf) -> mp.mpf:
        if mp.isinf(high):
            return _gaussian(y, scale)(x) - mp.log(mp.ncdf((x - low) / scale))
        return _gaussian(y, scale)(x) - _between((low - x) / scale, (high - x) / scale)

    return log_density


def _generalised_poisson(y: int, lam: float) -> Callable[[mp.mpf], mp.mpf]:
    def log_density(x: mp.mpf) -> mp.mpf:
        theta = (1 - mp.mpf(lam)) * mp.exp(x)
        return mp.log(theta) + (y - 1) * mp.log(theta + lam * y) - theta - lam * y - mp.loggamma(y + 1)

    return log_density


SMALL_SDS = (1e-6, 1e-3, 0.1, 1.0, 7.0)
MODERATE_SDS = (1e-6, 1e-3, 0.1, 1.0, 4.0)
TABLE = (
    Row("logit_one", lambda: potentials.Logit(1), _logit),
    Row("logit_zero", lambda: potentials.Logit(0), lambda x: _logit(-x)),
    Row("probit_one", lambda: potentials.Probit(1), lambda x: mp.log(mp.ncdf(x))),
    Row("probit_zero", lambda: potentials.Probit(0), lambda x: mp.log(mp.ncdf(-x))),
    Row("logistic_unit", lambda: potentials.Logistic(), _logistic(0.0, 1.0)),
    Row("logistic_narrow", lambda: potentials.Logistic(-2.5, 0.125), _logistic(-2.5, 0.125), ((-2.5, 0.125),)),
    Row("poisson_zero", lambda: potentials.Poisson(0), _poisson(0), sds=SMALL_SDS, reach=lambda sd: 14 + sd),
    Row("poisson_many", lambda: potentials.Poisson(37), _poisson(37), sds=SMALL_SDS, reach=lambda sd: 14 + sd),
    Row(
        "ordinal_probit_first",
        lambda: potentials.Ordinal(0, [-1.0, 0.5]),
        lambda x: mp.log(mp.ncdf(-1 - x)),
        ((-1.0, 1.0),),
    ),
    Row(
        "ordinal_probit_middle",
        lambda: potentials.Ordinal(1, [-1.0, 0.5]),
        lambda x: _between(-1 - x, mp.mpf("0.5") - x),
        ((-1.0, 1.0), (0.5, 1.0)),
    ),
    Row(
        "ordinal_probit_narrow",
        lambda: potentials.Ordinal(1, [2.0, 2.0625, 3.0]),
        lambda x: _between(2 - x, mp.mpf("2.0625") - x),
        ((2.0, 1.0),),
    ),
    Row(
        "ordinal_logit_middle",
        lambda: potentials.Ordinal(1, [-1.0, 0.5], link="logit"),
        lambda x: mp.log(mp.sinh(mp.mpf("0.75")) / (mp.cosh(x + mp.mpf("0.25")) + mp.cosh(mp.mpf("0.75")))),
        ((-0.25, 1.0),),
    ),
    Row(
        "ordinal_logit_last",
        lambda: potentials.Ordinal(2, [-1.0, 0.5], link="logit"),
        lambda x: _logit(x - mp.mpf("0.5")),
        ((0.5, 1.0),),
    ),
    Row(
        "custom_sech",
        lambda: potentials.Custom(_log_sech, log_concave=True, super_gaussian=True),
        lambda x: mp.log(mp.sech(x)),
        sds=(1e-3, 0.1, 1.0, 7.0, 100.0),
    ),
    Row(
        "custom_tilted",
        lambda: potentials.Custom(lambda x, a: a * x + _log_sech((x - 3) / 2), args=[0.25], loc=3.0, scale=2.0),
        lambda x: x / 4 + mp.log(mp.sech((x - 3) / 2)),
        ((3.0, 2.0),),
        sds=(2e-3, 0.1, 1.0, 7.0, 100.0),
    ),
    Row("gaussian_unit", lambda: potentials.Gaussian(), _gaussian(0.0, 1.0)),
    Row("gaussian_narrow", lambda: potentials.Gaussian(0.5, 0.125), _gaussian(0.5, 0.125), ((0.5, 0.125),)),
    Row("laplace_unit", lambda: potentials.Laplace(), lambda x: -abs(x) - mp.log(2)),
    Row(
        "laplace_at_a_mean",
        lambda: potentials.Laplace(-3.0, 0.125),
        lambda x: -8 * abs(x + 3) - mp.log(0.25),
        ((-3.0, 0.125),),
    ),
    Row("step_one", lambda: potentials.Step(1, 0.25), lambda x: mp.log(0.75 if x >= 0 else 0.25)),
    Row(
        "step_zero",
        lambda: potentials.Step(0, 2.0**-20),
        lambda x: mp.log(1 - mp.mpf(2) ** (-20) if x <= 0 else 2.0**-20),
    ),
    Row(
        "student_t_three",
        lambda: potentials.StudentT(3.0, 0.5, 0.5),
        _student(3.0, 0.5, 0.5),
        ((0.5, 0.5),),
    ),
    Row(
        "student_t_heavy",
        lambda: potentials.StudentT(0.5, -3.0, 0.125),
        _student(0.5, -3.0, 0.125),
        ((-3.0, 0.0625),),
    ),
    Row("student_t_light", lambda: potentials.StudentT(40.0), _student(40.0, 0.0, 1.0)),
    Row("cauchy_unit", lambda: potentials.Cauchy(), lambda x: -mp.log(mp.pi * (1 + x * x))),
    Row(
        "cauchy_narrow",
        lambda: potentials.Cauchy(-3.0, 0.0625),
        lambda x: -mp.log(mp.pi / 16 * (1 + (16 * (x + 3)) ** 2)),
        ((-3.0, 0.0625),),
    ),
    Row(
        "generalised_normal_sparse",
        lambda: potentials.GeneralisedNormal(0.5, -3.0, 0.25),
        _generalised(0.5, -3.0, 0.25),
        ((-3.0, 0.25),),
        halvings=72,
        default=1e-3,
    ),
    Row(
        "generalised_normal_kinked",
        lambda: potentials.GeneralisedNormal(1.5),
        _generalised(1.5, 0.0, 1.0),
        halvings=48,
        default=1e-7,
    ),
    Row(
        "generalised_normal_box",
        lambda: potentials.GeneralisedNormal(6.0, 0.5, 2.0),
        _generalised(6.0, 0.5, 2.0),
        ((0.5, 2.0),),
    ),
    Row(
        "gaussian_mixture_spike_and_slab",
        lambda: potentials.GaussianMixture([0.75, 0.25], 0.0, [0.0625, 2.0]),
        _mixture((0.75, 0.0, 0.0625), (0.25, 0.0, 2.0)),
        ((-0.2, 0.06), (0.2, 0.06)),
    ),
    Row(
        "gaussian_mixture_three",
        lambda: potentials.GaussianMixture([0.5, 0.25, 0.25], [-2.0, 0.0, 1.5], [0.5, 0.25, 3.0]),
        _mixture((0.5, -2.0, 0.5), (0.25, 0.0, 0.25), (0.25, 1.5, 3.0)),
        ((-2.0, 0.5), (0.0, 0.25), (1.5, 3.0), (-0.7, 0.2), (-3.5, 0.5), (0.7, 0.2)),
    ),
    Row(
        "binomial_logit",
        lambda: potentials.Binomial(3, 10),
        _binomial(3, 10, _logit, lambda x: _logit(-x)),
    ),
    Row(
        "binomial_probit",
        lambda: potentials.Binomial(0, 4, "probit"),
        _binomial(0, 4, lambda x: mp.log(mp.ncdf(x)), lambda x: mp.log(mp.ncdf(-x))),
    ),
    Row(
        "binomial_cloglog",
        lambda: potentials.Binomial(6, 8, "cloglog"),
        _binomial(6, 8, _log_event, lambda x: -mp.exp(x)),
        sds=SMALL_SDS,
        reach=lambda sd: 14 + sd,
    ),
    Row(
        "negative_binomial_few",
        lambda: potentials.NegativeBinomial(2, 0.5),
        _negative_binomial(2, 0.5),
        ((0.7, 1.0),),
    ),
    Row(
        "negative_binomial_many",
        lambda: potentials.NegativeBinomial(40, 0.0625),
        _negative_binomial(40, 0.0625),
        ((2.8, 1.0),),
    ),
    Row(
        "negative_binomial_linear",
        lambda: potentials.NegativeBinomial(5, 2.0, "linear"),
        _linear_negative_binomial(5, 2.0),
        ((0.7, 1.0), (2.3, 1.0)),
        sds=SMALL_SDS,
        reach=lambda sd: 14 + sd,
    ),
    Row("gamma_one", lambda: potentials.Gamma(1.5, 1.0), _gamma(1.5, 1.0), sds=SMALL_SDS, reach=lambda sd: 14 + sd),
    Row(
        "gamma_peaked",
        lambda: potentials.Gamma(0.125, 20.0),
        _gamma(0.125, 20.0),
        ((-2.1, 1.0),),
        sds=SMALL_SDS,
        reach=lambda sd: 14 + sd,
    ),
    Row(
        "inverse_gaussian_flat",
        lambda: potentials.InverseGaussian(2.0, 0.5),
        _inverse_gaussian(2.0, 0.5),
        ((0.7, 1.0),),
        sds=MODERATE_SDS,
        reach=lambda sd: 14 + 2 * sd,
        default=1e-6,
    ),
    Row(
        "inverse_gaussian_peaked",
        lambda: potentials.InverseGaussian(0.5, 16.0),
        _inverse_gaussian(0.5, 16.0),
        ((-0.7, 1.0),),
        sds=MODERATE_SDS,
        reach=lambda sd: 14 + 2 * sd,
        default=1e-6,
    ),
    Row(
        "log_normal_unit",
        lambda: potentials.LogNormal(2.0),
        lambda x: _gaussian(mp.log(2), 1.0)(x) - mp.log(2),
    ),
    Row(
        "log_normal_narrow",
        lambda: potentials.LogNormal(0.25, 0.125),
        lambda x: _gaussian(mp.log(0.25), 0.125)(x) - mp.log(0.25),
        ((-1.4, 0.125),),
    ),
    Row(
        "weibull_event",
        lambda: potentials.Weibull(2.0, 1, 1.5),
        _weibull(1, 1.5, 2.0),
        ((0.7, 0.66),),
        sds=MODERATE_SDS,
        reach=lambda sd: 14 + 2 * sd,
    ),
    Row(
        "weibull_left",
        lambda: potentials.Weibull(0.5, 2, 0.75),
        _weibull(2, 0.75, 0.5),
        ((-0.7, 1.33),),
    ),
    Row(
        "weibull_interval",
        lambda: potentials.Weibull(2.0, 3, 1.5, 5.0),
        _weibull(3, 1.5, 2.0, 5.0),
        ((0.7, 0.66), (1.6, 0.66)),
        sds=MODERATE_SDS,
        reach=lambda sd: 14 + 2 * sd,
    ),
    Row(
        "exponential_event",
        lambda: potentials.Exponential(3.0),
        _weibull(1, 1.0, 3.0),
        ((1.1, 1.0),),
        sds=SMALL_SDS,
        reach=lambda sd: 14 + sd,
    ),
    Row(
        "exponential_right",
        lambda: potentials.Exponential(0.5, 0),
        _weibull(0, 1.0, 0.5),
        ((-0.7, 1.0),),
        sds=SMALL_SDS,
        reach=lambda sd: 14 + sd,
    ),
    Row(
        "log_logistic_event",
        lambda: potentials.LogLogistic(2.0, 1, 2.5),
        _log_logistic(1, 2.5, 2.0),
        ((0.7, 0.4),),
    ),
    Row(
        "log_logistic_right",
        lambda: potentials.LogLogistic(2.0, 0, 0.5),
        _log_logistic(0, 0.5, 2.0),
        ((0.7, 2.0),),
    ),
    Row(
        "log_logistic_interval",
        lambda: potentials.LogLogistic(0.5, 3, 2.0, 4.0),
        _log_logistic(3, 2.0, 0.5, 4.0),
        ((-0.7, 0.5), (1.4, 0.5)),
    ),
    Row(
        "tweedie_zero",
        lambda: potentials.Tweedie(0.0, 1.5, 0.5),
        _tweedie(0.0, 1.5, 0.5),
        sds=SMALL_SDS,
        reach=lambda sd: 14 + sd,
    ),
    Row(
        "tweedie_positive",
        lambda: potentials.Tweedie(3.0, 1.25, 2.0),
        _tweedie(3.0, 1.25, 2.0),
        ((1.1, 1.0),),
        sds=SMALL_SDS,
        reach=lambda sd: 14 + sd,
    ),
    Row("beta_middle", lambda: potentials.Beta(0.25, 8.0), _beta(0.25, 8.0), ((0.0, 1.0), (-1.1, 0.33))),
    Row("beta_edge", lambda: potentials.Beta(2.0**-10, 1.5), _beta(2.0**-10, 1.5)),
    Row("beta_binomial_some", lambda: potentials.BetaBinomial(3, 10, 4.0), _beta_binomial(3, 10, 4.0)),
    Row("beta_binomial_none", lambda: potentials.BetaBinomial(0, 4, 2.0), _beta_binomial(0, 4, 2.0)),
    Row("asymmetric_laplace_high", lambda: potentials.AsymmetricLaplace(0.875), _asymmetric(0.875, 0.0, 1.0)),
    Row(
        "asymmetric_laplace_low",
        lambda: potentials.AsymmetricLaplace(0.25, -3.0, 0.125),
        _asymmetric(0.25, -3.0, 0.125),
        ((-3.0, 0.125),),
    ),
    Row("huber_unit", lambda: potentials.Huber(threshold=1.5), _huber(0.0, 1.0, 1.5), ((-1.5, 1.0), (1.5, 1.0))),
    Row(
        "huber_narrow",
        lambda: potentials.Huber(0.5, 0.125, 0.5),
        _huber(0.5, 0.125, 0.5),
        ((0.4375, 0.125), (0.5625, 0.125)),
    ),
    Row(
        "interval_unit",
        lambda: potentials.Interval(-1.0, 0.5),
        lambda x: mp.mpf(0) if -1 <= x <= 0.5 else -mp.inf,
        box=(-1.0, 0.5),
    ),
    Row(
        "interval_open",
        lambda: potentials.Interval(2.0, np.inf),
        lambda x: mp.mpf(0) if x >= 2 else -mp.inf,
        box=(2.0, np.inf),
    ),
    Row(
        "zero_inflated_poisson",
        lambda: potentials.ZeroInflated(potentials.Poisson(0), 0.25),
        _zero_inflated(0.25, _poisson(0)),
        ((0.1, 1.0), (1.0, 0.5)),
    ),
    Row(
        "zero_inflated_negative_binomial",
        lambda: potentials.ZeroInflated(potentials.NegativeBinomial(0, 0.5), 0.0625),
        _zero_inflated(0.0625, _negative_binomial(0, 0.5)),
        ((0.7, 1.0), (1.5, 0.5)),
    ),
    Row(
        "hurdle_poisson",
        lambda: potentials.Hurdle(potentials.Poisson(1), 0.25),
        _hurdle(0.25, _poisson(1), _poisson(0)),
        ((0.0, 1.0), (1.8, 1.0)),
        sds=SMALL_SDS,
        reach=lambda sd: 14 + sd,
    ),
    Row(
        "hurdle_negative_binomial",
        lambda: potentials.Hurdle(potentials.NegativeBinomial(6, 2.0), 0.5),
        _hurdle(0.5, _negative_binomial(6, 2.0), _negative_binomial(0, 2.0)),
        ((-0.7, 1.0),),
    ),
    Row(
        "spike_and_slab_wide",
        lambda: potentials.SpikeAndSlab(0.25, 2.0, 0.0625),
        _mixture((0.75, 0.0, 0.0625), (0.25, 0.0, 2.0)),
        ((-0.2, 0.06), (0.2, 0.06)),
    ),
    Row(
        "spike_and_slab_close",
        lambda: potentials.SpikeAndSlab(0.5, 0.5, 0.25),
        _mixture((0.5, 0.0, 0.25), (0.5, 0.0, 0.5)),
        ((-0.4, 0.2), (0.4, 0.2)),
    ),
    Row("horseshoe_unit", lambda: potentials.Horseshoe(), _horseshoe(0.0, 1.0), halvings=72, default=1e-6),
    Row(
        "horseshoe_narrow",
        lambda: potentials.Horseshoe(0.5, 0.0625),
        _horseshoe(0.5, 0.0625),
        ((0.5, 0.0625),),
        halvings=72,
        default=1e-6,
    ),
    Row(
        "truncated_below",
        lambda: potentials.Truncated(potentials.Gaussian(1.5, 0.5), low=1.0),
        _truncated(1.5, 0.5, 1.0, mp.inf),
        ((1.5, 0.5), (1.0, 0.5)),
    ),
    Row(
        "truncated_both",
        lambda: potentials.Truncated(potentials.Gaussian(0.0), low=-1.0, high=2.0),
        _truncated(0.0, 1.0, -1.0, 2.0),
        ((-1.0, 1.0), (2.0, 1.0)),
    ),
    Row(
        "generalised_poisson_none",
        lambda: potentials.GeneralisedPoisson(0, 0.5),
        _generalised_poisson(0, 0.5),
        sds=SMALL_SDS,
        reach=lambda sd: 14 + sd,
    ),
    Row(
        "generalised_poisson_some",
        lambda: potentials.GeneralisedPoisson(7, 0.25),
        _generalised_poisson(7, 0.25),
        ((0.8, 1.0), (2.0, 1.0)),
        sds=SMALL_SDS,
        reach=lambda sd: 14 + sd,
    ),
)
NAMES = [row.name for row in TABLE]


def _log_sech(x: np.ndarray) -> np.ndarray:
    return -np.abs(x) - np.log1p(np.exp(-2 * np.abs(x))) + np.log(2.0)


# --- the 30-digit integrals ---------------------------------------------------------------------


def _edges(row: Row, m: mp.mpf, s: mp.mpf, low: mp.mpf, high: mp.mpf, extra: list[mp.mpf]) -> list[mp.mpf]:
    """Panel edges in z = (x − m)/s: every standard deviation, and halved towards every bend."""
    edges = [low, high, *extra, *(mp.mpf(k) for k in range(-15, 16))]
    for centre, width in row.bends:
        steps = [mp.mpf(width) * mp.mpf(2) ** k for k in range(-row.halvings, 12)]
        edges += [(centre + side * step - m) / s for step in [*steps, 0] for side in (-1, 1)]
    return sorted({edge for edge in edges if low <= edge <= high})


def _nodes(edges: list[mp.mpf]) -> list[tuple[mp.mpf, mp.mpf]]:
    spans = [(a, b) for a, b in pairwise(edges) if b > a]
    return [((a + b) / 2 + (b - a) / 2 * t, (b - a) / 2 * w) for a, b in spans for t, w in _legendre(mp.mp.prec)]


@cache
def _legendre(precision: int) -> list[tuple[mp.mpf, mp.mpf]]:
    """The 24-point Gauss–Legendre rule."""
    return mp.calculus.quadrature.GaussLegendre(mp.mp).calc_nodes(4, precision)


def expected(row: Row, mean: float, sd: float) -> list[float]:
    """⟨ψ⟩, ⟨zψ⟩/s, ⟨(z² − 1)ψ⟩/(2s²), the constant ψ(m) taken out of the last two."""
    m, s, reach = mp.mpf(mean), mp.mpf(sd), mp.mpf(row.reach(sd))
    constant = row.log_density(m)
    total = [mp.mpf(0)] * 3
    for z, w in _nodes(_edges(row, m, s, -reach, reach, [])):
        psi = w * mp.npdf(z) * (row.log_density(m + s * z) - constant)
        total = [total[0] + psi, total[1] + z * psi, total[2] + (z * z - 1) * psi]
    return [float(total[0] + constant), float(total[1] / s), float(total[2] / (2 * s * s))]


def _tilted(row: Row, mean: float, sd: float, power: float) -> list[float]:
    """log Z, mean and variance; panels are halved towards the top of the integrand, however narrow it is."""
    if row.box:
        return _cut(*row.box, mean, sd)
    m, s = mp.mpf(mean), mp.mpf(sd)

    def log_g(z: mp.mpf) -> mp.mpf:
        return -z * z / 2 + mp.mpf(power) * row.log_density(m + s * z)

    centres = [(mp.mpf(centre) - m) / s for centre, _ in row.bends]
    low, high = min([*centres, 0]) - 14, max([*centres, 0]) + 14
    coarse = _edges(row, m, s, low, high, [low + (high - low) * k / 64 for k in range(65)])
    values = [log_g(z) for z in coarse]
    best = values.index(max(values))
    a, b = coarse[max(best - 1, 0)], coarse[min(best + 1, len(coarse) - 1)]
    while b - a > mp.mpf(10) ** -9:
        third = (b - a) / 3
        a, b = (a, b - third) if log_g(a + third) > log_g(b - third) else (a + third, b)
    top = log_g(a)
    narrow = next(k for k in range(-24, 9) if min(log_g(a - mp.mpf(2) ** k), log_g(a + mp.mpf(2) ** k)) < top - 0.3)
    around = [a + side * mp.mpf(2) ** k for k in range(narrow - 1, 4) for side in (-1, 1)] + [a]
    edges = _edges(row, m, s, min(low, a - 14), max(high, a + 14), around)
    sums = [mp.mpf(0)] * 3
    keep = [log_g(edge) > top - 90 for edge in edges]
    for i in range(len(edges) - 1):
        if not (keep[i] or keep[i + 1]):
            continue
        for z, w in _nodes(edges[i : i + 2]):
            g, d = w * mp.exp(log_g(z) - top), z - a
            sums = [sums[0] + g, sums[1] + g * d, sums[2] + g * d * d]
    first = sums[1] / sums[0]
    log_z = top + mp.log(sums[0] / mp.sqrt(2 * mp.pi))
    return [float(log_z), float(m + s * (a + first)), float(s * s * (sums[2] / sums[0] - first**2))]


def _cut(low: float, high: float, mean: float, sd: float) -> list[float]:
    """Log mass, mean and variance of a normal cut to an interval, by the textbook formulas with digits to spare."""
    with mp.workdps(120):
        a, b = ((mp.mpf(end) - mean) / mp.mpf(sd) for end in (low, high))
        # on the side where the distribution function is small
        mass = mp.ncdf(-a) - mp.ncdf(-b) if a > 0 else mp.ncdf(b) - mp.ncdf(a)
        left, right = mp.npdf(a), mp.npdf(b)
        shift = (left - right) / mass
        spread = 1 + (a * left - (b * right if mp.isfinite(b) else 0)) / mass - shift**2
        return [float(mp.log(mass)), float(mean + sd * shift), float(mp.mpf(sd) ** 2 * spread)]


def reference(row: Row, mean: float, sd: float) -> np.ndarray:
    """Expected log (3 numbers) and tilted moments for each power (3 numbers each), in one line."""
    with mp.workdps(DIGITS):
        soft = [0.0] * 3 if row.box else expected(row, mean, sd)
        lines = [soft, *(_tilted(row, mean, sd, power) for power in POWERS)]
    return np.array(lines).ravel()


def stored(row: Row) -> np.ndarray:
    with np.load(REFERENCES / f"{row.name}.npz") as archive:
        assert archive["points"].tolist() == [list(point) for point in row.points()], "regenerate the references"
        return archive["values"]


def generate(names: list[str]) -> None:
    for row in TABLE:
        if not names or row.name in names:
            values = np.array([reference(row, *point) for point in row.points()])
            np.savez_compressed(REFERENCES / f"{row.name}.npz", points=np.array(row.points()), values=values)


if __name__ == "__main__":
    generate(sys.argv[1:])
