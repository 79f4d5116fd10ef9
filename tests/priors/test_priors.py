"""Every prior: normalised, its slope that of its log density, its quantiles those of its mass, its draws likewise."""

import numpy as np
import pytest
from scipy.integrate import quad

from latlin import priors
from latlin.priors import (
    Beta,
    Correlation,
    Exponential,
    Flat,
    Gamma,
    HalfCauchy,
    HalfNormal,
    HalfStudentT,
    InverseGamma,
    LogNormal,
    PenalisedComplexity,
    Prior,
    Uniform,
)

PROPER = [
    HalfNormal(0.7),
    HalfCauchy(2.0),
    HalfStudentT(4.0, 1.3),
    Exponential(0.4),
    PenalisedComplexity(3.0, 0.05),
    Gamma(2.5, 1.7),
    InverseGamma(3.0, 2.0),
    LogNormal(-0.5, 0.8),
    Beta(2.0, 3.5),
    Uniform(-1.0, 2.5),
    Correlation(2.5),
]


def test_every_family_is_in_this_table():
    families = {getattr(priors, name) for name in priors.__all__} - {Prior, Flat}
    assert families == {type(prior) for prior in PROPER}


@pytest.mark.parametrize("prior", PROPER, ids=repr)
class TestProper:
    def test_mass_below_a_quantile(self, prior):
        low, _ = prior.support
        for p in (0.03, 0.5, 0.9):
            mass, _ = quad(lambda x: float(np.exp(prior.log_density(x))), low, float(prior.quantile(p)), limit=200)
            assert mass == pytest.approx(p, abs=1e-7)
        assert prior.normalised

    def test_slope(self, prior):
        x, h = prior.quantile([0.1, 0.4, 0.8]), 1e-5
        numeric = (prior.log_density(x + h) - prior.log_density(x - h)) / (2 * h)
        assert prior.slope(x) == pytest.approx(numeric, rel=1e-6, abs=1e-6)

    def test_draws(self, prior):
        draws = prior.sample(20_000, random_state=3)
        shares = [np.mean(draws < prior.quantile(p)) for p in (0.1, 0.5, 0.9)]
        assert shares == pytest.approx([0.1, 0.5, 0.9], abs=0.012)
        assert np.array_equal(draws, prior.sample(20_000, random_state=3))

    def test_nothing_outside(self, prior):
        low, high = prior.support
        assert prior.log_density(low - 0.1) == -np.inf
        assert prior.slope(low - 0.1) == 0.0
        if np.isfinite(high):
            assert prior.log_density(high + 0.1) == -np.inf

    def test_repr_and_equality(self, prior):
        again = eval(repr(prior), vars(priors))
        assert again == prior


@pytest.mark.parametrize("prior", [p for p in PROPER if p.support[0] >= 0.0], ids=repr)
def test_density_of_the_logarithm(prior):
    high = prior.support[1]
    mass, _ = quad(
        lambda u: float(np.exp(prior.log_density_of_log(u))), -60.0, min(np.log(high), 60.0), limit=400, points=[0]
    )
    assert mass == pytest.approx(1.0, abs=1e-6)
    u, h = np.log(prior.quantile([0.2, 0.7])), 1e-5
    numeric = (prior.log_density_of_log(u + h) - prior.log_density_of_log(u - h)) / (2 * h)
    assert prior.slope_of_log(u) == pytest.approx(numeric, rel=1e-6, abs=1e-6)


def test_flat_is_no_density():
    assert not Flat().normalised
    assert Flat().log_density([-3.0, 7.0]).tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="Flat is not normalised"):
        Flat().sample(3)


def test_a_half_t_is_between_its_limits():
    x = np.array([0.1, 1.0, 5.0])
    assert HalfStudentT(1.0, 2.0).log_density(x) == pytest.approx(HalfCauchy(2.0).log_density(x))
    assert HalfStudentT(1e8, 2.0).log_density(x) == pytest.approx(HalfNormal(2.0).log_density(x), abs=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HalfNormal(0.0), "HalfNormal scale must be a positive number, got 0.0"),
        (lambda: HalfCauchy("a"), "HalfCauchy scale must be a positive number, got 'a'"),
        (lambda: HalfStudentT(-1, 1), "HalfStudentT df must be a positive number, got -1"),
        (lambda: Exponential(np.nan), "Exponential scale must be a positive number, got nan"),
        (lambda: PenalisedComplexity(1.0, 1.5), "probability must lie strictly between 0 and 1, got 1.5"),
        (lambda: Gamma(True, 1.0), "Gamma shape must be a positive number, got True"),
        (lambda: InverseGamma(1.0, np.inf), "InverseGamma scale must be a positive number, got inf"),
        (lambda: LogNormal(np.inf, 1.0), "LogNormal mean must be a finite number, got inf"),
        (lambda: Beta(1.0, None), "Beta b must be a positive number, got None"),
        (lambda: Uniform(2.0, 1.0), "Uniform low must lie below high, got 2 and 1"),
        (lambda: HalfNormal(1.0).quantile(1.0), "p must hold probabilities strictly between 0 and 1"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
