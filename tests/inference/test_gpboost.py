"""Laplace evidences against the negative log likelihoods that GPBoost's tests state for data of its own generator.

The numbers are those of `R-package/tests/testthat/test_GPModel_non_Gaussian_data.R` of GPBoost: one grouped effect of
variance 0.9 (ten groups of ten rows), or a process with covariance 0.9·exp(−distance/0.2), on 100 rows. Shapes that its
tests leave out have the values with which it starts (precision 1 for beta and 20 for beta-binomial sites, dispersion
and log variance 0.5).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, ndtr, ndtri

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer
from latlin.potentials import (
    Beta,
    BetaBinomial,
    Binomial,
    Gamma,
    Logit,
    LogNormal,
    NegativeBinomial,
    Poisson,
    Potential,
    Probit,
)

N, GROUPS = 100, 10
Array = np.ndarray


def uniforms(count: int, first: float) -> Array:
    """A linear congruential generator, k → 22695477 k + 1 mod 2³², in double precision: the products are rounded."""
    states = [float(np.floor(first * 2.0**32))]
    while len(states) < count:
        states.append((22695477.0 * states[-1] + 1.0) % 2.0**32)
    return np.array(states) / 2.0**32


COORDS = uniforms(2 * N, 0.1).reshape(2, N).T
DISTANCE = np.sqrt(((COORDS[:, None] - COORDS[None]) ** 2).sum(axis=-1))
SMOOTH = np.linalg.cholesky(np.exp(-DISTANCE / 0.1) + 1e-20 * np.eye(N)) @ ndtri(uniforms(N, 0.8))
MEMBERS = np.repeat(np.eye(GROUPS), N // GROUPS, axis=0)
GROUPED = MEMBERS @ ndtri(uniforms(GROUPS, 0.565))
LINE = 0.1 + 2.0 * np.sin((np.arange(1, N + 1) - N / 2) ** 2 * 2 * np.pi / N)
#: the predictor of the regressions with a line, of which the fits know nothing
MIXED = GROUPED + 0.5 * LINE


def process(potential: Potential) -> float:
    """Minus the Laplace evidence of a Gaussian process."""
    prior = GaussianFactor(cov=0.9 * np.exp(-DISTANCE / 0.2))
    model = LatentLinearModel([prior, SiteFactor(np.eye(N), potential)])
    return -infer(model, "laplace").log_evidence


def grouped(potential: Potential, offset: Array | float = 0.0) -> float:
    """Minus the Laplace evidence of one grouped effect."""
    model = LatentLinearModel([GaussianFactor(cov=0.9), SiteFactor(MEMBERS, potential, offset=offset)])
    return -infer(model, "laplace").log_evidence


def binary(chance: Array, first: float) -> Array:
    return (uniforms(N, first) < chance).astype(float)


def successes(chance: Array, trials: Array) -> Array:
    return np.asarray(stats.binom.ppf(uniforms(N, 0.146), trials, chance))


def overdispersed() -> float:
    mean, trials = expit(MIXED), stats.poisson.ppf(uniforms(N, 0.15468), 5.0) + 1.0
    chance = stats.beta.ppf(uniforms(N, 0.5940), 2.0 * mean, 2.0 * (1.0 - mean))
    return grouped(BetaBinomial(successes(chance, trials), trials, 20.0))


def shares() -> float:
    mean = expit(MIXED)
    y = stats.beta.ppf(uniforms(N, 0.135456), 2.0 * mean, 2.0 * (1.0 - mean))
    return grouped(Beta(y, 1.0))


def linear_variance() -> float:
    y = stats.nbinom.ppf(uniforms(N, 0.135456), np.exp(MIXED) / 0.5, 1.0 / 1.5)
    return grouped(NegativeBinomial(y, 0.5, "linear"))


TRIALS = stats.poisson.ppf(uniforms(N, 0.9146), 5.0)
CASES: dict[str, tuple[float, Callable[[], float]]] = {
    "probit, process": (63.6205917, lambda: process(Probit(binary(ndtr(SMOOTH), 0.2341)))),
    "logit, process": (66.299571, lambda: process(Logit(binary(expit(SMOOTH), 0.2341)))),
    "probit, groups": (65.8590638, lambda: grouped(Probit(binary(ndtr(GROUPED), 0.823431)))),
    "Poisson, groups": (
        140.4554806,
        lambda: grouped(Poisson(stats.poisson.ppf(uniforms(N, 0.04532), np.exp(GROUPED)))),
    ),
    "Poisson, process": (
        195.03708036,
        lambda: process(Poisson(stats.poisson.ppf(uniforms(N, 0.435), np.exp(SMOOTH)))),
    ),
    "gamma, groups": (105.676137, lambda: grouped(Gamma(-np.exp(GROUPED) * np.log1p(-uniforms(N, 0.04532)), 1.0))),
    "gamma, process": (154.4561783, lambda: process(Gamma(-np.exp(SMOOTH) * np.log1p(-uniforms(N, 0.435)), 1.0))),
    "negative binomial, process": (
        180.5949853,
        lambda: process(
            NegativeBinomial(stats.nbinom.ppf(uniforms(N, 0.546), 1.8, 1.8 / (1.8 + np.exp(SMOOTH))), 1 / 1.093074798)
        ),
    ),
    "binomial logit": (164.4059537, lambda: grouped(Binomial(successes(expit(MIXED), TRIALS), TRIALS))),
    "binomial probit": (184.0923436, lambda: grouped(Binomial(successes(ndtr(MIXED), TRIALS), TRIALS, "probit"))),
    "beta": (-31.05453707, shares),
    "beta-binomial": (220.9211521, overdispersed),
    "negative binomial, linear variance": (178.2504468, linear_variance),
    "log-normal": (
        132.6707012,
        lambda: grouped(
            LogNormal(np.exp(MIXED - 0.25 + np.sqrt(0.5) * ndtri(uniforms(N, 0.913468))), np.sqrt(0.5)), offset=-0.25
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_laplace_evidence_is_gpboosts(case: str) -> None:
    stated, ours = CASES[case]
    assert ours() == pytest.approx(stated, abs=1e-6)
