"""Counts of 10⁹ and a few more: converged in the usual number of steps, with the coefficients of a smaller problem."""

import numpy as np
import pytest

from latlin import engines
from latlin.linear import BayesianBinomialRegression, BayesianCountRegression, BayesianPoissonRegression

RNG = np.random.default_rng(0)
X = RNG.standard_normal((24, 3))
Y = 1e9 + np.arange(24.0)
TRIALS = np.full(24, 4e9)
DIAGONAL = engines.GaussianKL(covariance="diagonal")


@pytest.mark.parametrize("engine", ["gkl", "laplace", "ep", "mean-field", DIAGONAL], ids=str)
@pytest.mark.parametrize("family", ["poisson", "binomial"])
def test_rounding_of_large_terms_is_no_lack_of_convergence(family, engine):
    if family == "poisson":
        model = BayesianPoissonRegression(prior_scale=1.0, engine=engine).fit(X, Y)
    else:
        model = BayesianBinomialRegression(prior_scale=1.0, engine=engine).fit(X, Y, trials=TRIALS)
    assert model.posterior_.converged
    assert model.posterior_.n_iter <= 30
    # weighted least squares of log y or of the log odds, to first order, each row with the same weight
    rows, share = np.column_stack([X, np.ones(24)]), 1.0 if family == "poisson" else 0.75
    slopes = np.linalg.lstsq(rows, (Y - 1e9) / 1e9 / share, rcond=None)[0][:3]
    np.testing.assert_allclose(model.coef_, slopes, atol=1e-2 * model.coef_std_.min())


@pytest.mark.parametrize("kind", [BayesianPoissonRegression, BayesianCountRegression])
def test_the_search_for_the_prior_scale_converges_too(kind):
    rates = RNG.poisson(1e9 * np.exp(0.1 * X[:, 0])).astype(float)
    for y in (Y, rates):
        assert kind().fit(X, y).posterior_.converged


@pytest.mark.parametrize("engine", ["gkl", "laplace"])
@pytest.mark.parametrize(
    ("family", "size"),
    [
        ("beta-binomial", 1e6),
        ("beta-binomial", 1e9),
        ("negative-binomial", 1e6),
        ("negative-binomial", 1e9),
        ("generalised-poisson", 1e6),
    ],
)
def test_families_with_a_dispersion_converge(family, engine, size):
    rng = np.random.default_rng(1)
    eta = 0.3 * X[:, 0]
    if family == "beta-binomial":
        share = rng.beta(200.0 / (1.0 + np.exp(-eta)), 200.0 / (1.0 + np.exp(eta)))
        y = rng.binomial(int(4 * size), share).astype(float)
        model = BayesianBinomialRegression(family, prior_scale=1.0, engine=engine).fit(X, y, trials=4.0 * size)
    else:
        # a spread of the size of the counts, or of twice their root
        spread = 0.05 if family == "negative-binomial" else 2.0 / np.sqrt(size)
        y = np.round(size * np.exp(eta) * (1.0 + spread * rng.standard_normal(24)))
        model = BayesianCountRegression(family, prior_scale=1.0, engine=engine).fit(X, y)
    assert model.converged_
    assert abs(model.coef_[0] - 0.3) < 4.0 * model.coef_std_[0]
