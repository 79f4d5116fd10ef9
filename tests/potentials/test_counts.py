"""Distribution functions and quantiles of new counts, for every count family."""

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from latlin.potentials import (
    BetaBinomial,
    Binomial,
    GeneralisedPoisson,
    Hurdle,
    NegativeBinomial,
    Poisson,
    Tweedie,
    ZeroInflated,
)
from latlin.potentials.averaged import AveragedPredictive
from latlin.potentials.kernels.counts import beta_binomial_cdf

FAMILIES = {
    "poisson": Poisson(0),
    "negative binomial": NegativeBinomial(0, 0.7),
    "linear negative binomial": NegativeBinomial(0, 0.7, "linear"),
    "generalised poisson": GeneralisedPoisson(0, 0.4),
    "zero-inflated": ZeroInflated(NegativeBinomial(0, 0.7), 0.3),
    "hurdle": Hurdle(NegativeBinomial(0, 0.7), 0.3),
    "binomial": Binomial(0, 15),
    "probit": Binomial(0, 15, "probit"),
    "beta-binomial": BetaBinomial(0, 15, 0.8),
}
MEAN, VARIANCE = np.array([-1.0, 0.5, 1.5, 0.2]), np.array([0.0, 0.01, 0.3, 2.0])


@pytest.mark.parametrize("name", FAMILIES)
def test_the_distribution_function_sums_the_probabilities(name) -> None:
    found = FAMILIES[name].predictive(MEAN, VARIANCE)
    below = np.cumsum([np.exp(found.log_density(float(k))) for k in range(12)], axis=0)
    np.testing.assert_allclose([found.cdf(float(k)) for k in range(12)], below, atol=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
def test_quantiles_are_the_smallest_counts(name) -> None:
    found = FAMILIES[name].predictive(MEAN, np.minimum(VARIANCE, 0.5))
    for q in (1e-6, 0.05, 0.5, 0.95, 0.9999):
        k = found.quantile(q)
        assert np.all(found.cdf(k) >= q)
        assert np.all((k == 0) | (found.cdf(k - 1.0) < q))


def test_quantiles_of_an_average_are_the_smallest_counts() -> None:
    parts = [NegativeBinomial(0, a).predictive(MEAN + a, VARIANCE) for a in (0.1, 0.5, 2.0)]
    found = AveragedPredictive(np.array([0.5, 0.3, 0.2]), parts)
    for q in (0.05, 0.5, np.array([0.9, 0.95, 0.99, 0.2])):
        k = found.quantile(q)
        assert np.all(found.cdf(k) >= q)
        assert np.all((k == 0) | (found.cdf(k - 1.0) < q))


def test_moments_beyond_all_counts_leave_quantiles() -> None:
    found = NegativeBinomial(0, 1.0).predictive([1.0], [200.0])
    assert found.mean[0] > 2.0**53
    k = found.quantile(0.5)
    assert found.cdf(k)[0] >= 0.5 > found.cdf(k - 1.0)[0]


@pytest.mark.parametrize(("n", "a", "b"), [(1, 0.2, 3.0), (12, 0.3, 0.4), (40, 5.0, 2.0), (500, 60.0, 900.0)])
def test_beta_binomial_sums(n, a, b) -> None:
    k = np.arange(n + 1.0)
    found = beta_binomial_cdf(k, float(n), np.array(a), np.array(b))
    np.testing.assert_allclose(found, stats.betabinom(n, a, b).cdf(k), rtol=1e-9)


def test_a_zero_inflated_block_keeps_where_it_bends_for_other_counts() -> None:
    block = ZeroInflated(NegativeBinomial([0, 2], 0.7), 0.3)
    other, anew = block.observe([3, 0]), ZeroInflated(NegativeBinomial([3, 0], 0.7), 0.3)
    assert other.log_concave == anew.log_concave
    np.testing.assert_allclose(other.expected_log([0.3, 0.1], 0.2), anew.expected_log([0.3, 0.1], 0.2), rtol=1e-12)
    assert block.observe([1, 2]).log_concave == ZeroInflated(NegativeBinomial([1, 2], 0.7), 0.3).log_concave


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_an_interval_has_the_nearest_probability(name, coverage) -> None:
    found = FAMILIES[name].predictive(MEAN, VARIANCE)
    upto = np.concatenate([np.zeros((1, 4)), found.cdf(np.arange(100.0)[:, None])])
    for row, low, high in zip(upto.T, *found.interval(coverage).astype(int), strict=True):
        # the central interval, one of its ends moved
        first, last = (int(np.argmax(row[1:] >= level)) for level in (0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage))
        moved = [(first, k) for k in range(first, 100)] + [(k, last) for k in range(last + 1)]
        assert (low, high) in moved
        apart = [abs(row[k + 1] - row[j] - coverage) for j, k in moved]
        assert abs(row[high + 1] - row[low] - coverage) < min(apart) + 1e-8


def test_intervals_of_counts_keep_their_promise_on_average() -> None:
    """Rows whose means differ: some intervals hold more, some less."""
    rng = np.random.default_rng(0)
    x = rng.normal(1.0, 0.7, 4000)
    for family in (Poisson(0), NegativeBinomial(0, 0.7), Binomial(0, 15)):
        found = family.predictive(x, np.full(4000, 0.01))
        low, high = found.interval(0.9)
        promised = found.cdf(high) - found.cdf(low - 1.0)
        assert abs(promised.mean() - 0.9) < 0.01
        assert promised.min() > 0.8
        new = found.sample(1, rng)[0]
        assert abs(np.mean((low <= new) & (new <= high)) - promised.mean()) < 0.02


def test_the_mass_at_zero_of_amounts_is_not_counted_twice() -> None:
    found = Tweedie(1.0, 1.5, 1.0).predictive([-1.0, 2.0], [0.1, 0.1])
    low, high = found.interval(0.8)
    assert low[0] == 0.0 < low[1]
    np.testing.assert_allclose(found.cdf(high) - [0.0, 0.1], 0.8, atol=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
def test_probability_integral_transforms_of_its_own_draws_are_even(name) -> None:
    found = FAMILIES[name].predictive(MEAN, VARIANCE)
    shares = found.pit(found.sample(500, 0), 1)
    assert shares.shape == (500, 4)
    assert stats.kstest(shares.ravel(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("k", "n", "s", "x"),
    [
        (3, 10, 5.0, -1.0),
        (3, 10, 1e6, 0.3),
        (10**6, 4 * 10**6, 50.0, -1.0),
        (10**9, 4 * 10**9, 50.0, -1.1),
        (2, 10**9, 3.0, -20.0),
        (4, 4, 0.02, 30.0),
        (1, 2, 0.01, -300.0),
    ],
)
def test_beta_binomial_densities_do_not_cancel(k, n, s, x):
    """Gamma functions of the size of the counts, against forty digits."""
    with mp.workdps(40):
        mu = 1 / (1 + mp.exp(-mp.mpf(x)))
        a, b = s * mu, s * (1 - mu)
        exact = mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1) + mp.loggamma(s) - mp.loggamma(n + s)
        exact = float(exact + mp.loggamma(k + a) - mp.loggamma(a) + mp.loggamma(n - k + b) - mp.loggamma(b))
    sites = BetaBinomial([float(k)], [float(n)], s)
    assert sites.log_density([x])[0] == pytest.approx(exact, rel=1e-12, abs=1e-13)
    assert sites.expected_log([x], [1e-30]).value[0] == pytest.approx(exact, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(("y", "lam", "x"), [(20000, 0.3, 9.9), (10**6, 0.49, 13.8), (10**9, 0.5, 20.723)])
def test_generalised_poisson_densities_do_not_cancel(y, lam, x):
    def psi(at):
        theta = (1 - mp.mpf(lam)) * mp.exp(at)
        return mp.log(theta) + (y - 1) * mp.log(theta + lam * y) - theta - lam * y - mp.loggamma(y + 1)

    sites = GeneralisedPoisson([float(y)], lam)
    with mp.workdps(60):
        exact = [float(mp.diff(psi, mp.mpf(x), order)) for order in (0, 1, 2)]
    first, second, _ = sites.derivatives([x])
    assert sites.log_density([x])[0] == pytest.approx(exact[0], rel=1e-11)
    assert sites.expected_log([x], [1e-20]).value[0] == pytest.approx(exact[0], rel=1e-11)
    assert first[0] == pytest.approx(exact[1], rel=1e-9)
    assert second[0] == pytest.approx(exact[2], rel=1e-9)
