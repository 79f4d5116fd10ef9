"""Counts up to 10⁹ converge in the usual number of steps, to the right numbers."""

import numpy as np
import pytest
from scipy.special import gammaln

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials

RNG = np.random.default_rng(0)


def rates_of_a_million(n=30):
    rows = 0.3 * RNG.standard_normal((n, 3))
    rows[:, 0] = 1.0
    y = RNG.poisson(np.exp(rows @ [14.0, 0.5, -0.5]))
    return LatentLinearModel([GaussianFactor(cov=100.0, dim=3), SiteFactor(rows, potentials.Poisson(y))])


BILLION = RNG.poisson(1e9, 5).astype(float)
MODELS = {
    "a million": rates_of_a_million(),
    "a billion": LatentLinearModel(
        [GaussianFactor(cov=1000.0, dim=1), SiteFactor(np.ones((5, 1)), potentials.Poisson(BILLION))]
    ),
    "a billion each": LatentLinearModel(
        [GaussianFactor(cov=1000.0, dim=5), SiteFactor(None, potentials.Poisson(BILLION))]
    ),
}
ENGINES = ["gkl", "laplace", "ep", "map", "mean-field", engines.GaussianKL(covariance="diagonal")]


@pytest.mark.parametrize("engine", ENGINES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_they_converge_in_the_usual_number_of_steps(name, engine):
    post = infer(MODELS[name], engine)
    assert post.converged
    assert post.n_iter <= 30


@pytest.mark.parametrize("engine", ["gkl", "laplace", "ep", "mean-field"])
def test_the_numbers_are_those_of_the_conjugate_posterior(engine):
    """Σ y is Poisson with rate 5e^w: under the wide prior e^w is gamma to nine digits."""
    post = infer(MODELS["a billion"], engine)
    total, n = BILLION.sum(), len(BILLION)
    assert post.mean[0] == pytest.approx(np.log(total / n), abs=1e-9)
    assert post.variance[0] == pytest.approx(1.0 / total, rel=1e-6)
    # log ∫ ∏ Poisson(y | e^w) N(w | 0, 1000) dw
    likelihood = gammaln(total) - total * np.log(n) - gammaln(BILLION + 1).sum()
    prior = -0.5 * np.log(2 * np.pi * 1000.0) - 0.5 * np.log(total / n) ** 2 / 1000.0
    assert post.log_evidence == pytest.approx(likelihood + prior, abs=1e-4)  # gammaln has ten digits there


@pytest.mark.parametrize("y", [0.0, 1.0, 20.0, 1e3, 1001.0, 1e9])
def test_log_densities_are_those_of_the_plain_formula(y):
    x = np.log(y + 1.0) + np.linspace(-3.0, 2.0, 11)
    plain = y * x - np.exp(x) - gammaln(y + 1.0)
    np.testing.assert_allclose(
        potentials.Poisson([y]).log_density(x[:, None])[:, 0], plain, rtol=1e-9, atol=1e-9 + 1e-14 * y
    )
    m, v = x, np.full(11, 0.3)
    expected = y * m - np.exp(m + 0.15) - gammaln(y + 1.0)
    np.testing.assert_allclose(
        potentials.Poisson(np.full(11, y)).expected_log(m, v).value, expected, rtol=1e-9, atol=1e-9 + 1e-14 * y
    )


#: a quarter of so many trials, and what varies as counts do
FAMILIES = {
    "logit": lambda k, n: potentials.Binomial(k, n),
    "probit": lambda k, n: potentials.Binomial(k, n, "probit"),
    "cloglog": lambda k, n: potentials.Binomial(k, n, "cloglog"),
    "negative binomial": lambda k, n: potentials.NegativeBinomial(k, 1e-9),
    "overdispersed": lambda k, n: potentials.NegativeBinomial(k, 0.1),
    "zero-inflated": lambda k, n: potentials.ZeroInflated(potentials.Poisson(k), 0.2),
}


@pytest.mark.parametrize("engine", ["gkl", "laplace", "ep", engines.GaussianKL(covariance="diagonal")], ids=str)
@pytest.mark.parametrize("shape", ["one", "rows"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_billion_of_every_family_converges(family, shape, engine):
    """The value rounds at 1e-6 where terms of 10⁹ cancel: a step that loses less has not failed."""
    rng = np.random.default_rng(1)
    n = 5 if shape == "one" else 30
    rows = np.ones((n, 1)) if shape == "one" else np.column_stack([np.ones(n), 1e-4 * rng.standard_normal((n, 2))])
    y = rng.binomial(4 * 10**9, 0.25, n).astype(float)
    sites = SiteFactor(rows, FAMILIES[family](y, 4e9))
    post = infer(LatentLinearModel([GaussianFactor(cov=1000.0, dim=rows.shape[1]), sites]), engine)
    assert post.converged
    assert post.n_iter <= 30


def test_the_numbers_of_many_trials_are_those_of_the_beta_posterior():
    """With a flat prior of the log odds the chance is Beta(k, n − k), to nine digits under a wide one."""
    k, n = 1e9, 4e9
    sites = SiteFactor([[1.0]], potentials.Binomial([k], [n]))
    post = infer(LatentLinearModel([GaussianFactor(cov=1000.0, dim=1), sites]), "gkl")
    assert post.converged
    assert post.mean[0] == pytest.approx(np.log(k / (n - k)), abs=1e-8)
    assert post.variance[0] == pytest.approx(1.0 / k + 1.0 / (n - k), rel=1e-6)


@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
@pytest.mark.parametrize("family", ["poisson", *FAMILIES])
def test_expectation_propagation_with_one_count_per_unknown(family, schedule):
    """Cavities are 1e12 times as wide as marginals: one less what a site takes is rounding."""
    rng, n = np.random.default_rng(1), 5
    y = rng.binomial(4 * 10**9, 0.25, n).astype(float)
    sites = potentials.Poisson(y) if family == "poisson" else FAMILIES[family](y, 4e9)
    model = LatentLinearModel([GaussianFactor(cov=1000.0, dim=n), SiteFactor(None, sites)])
    post, laplace = infer(model, engines.ExpectationPropagation(schedule=schedule)), infer(model, "laplace")
    assert post.converged
    assert post.n_iter <= 30
    if family != "overdispersed":  # which is skew
        np.testing.assert_allclose(post.mean, laplace.mean, atol=1e-3 * np.sqrt(laplace.variance.max()))
        np.testing.assert_allclose(post.variance, laplace.variance, rtol=1e-4)
        assert post.log_evidence == pytest.approx(laplace.log_evidence, abs=1e-5)


def test_counts_beyond_whole_numbers_are_refused():
    with pytest.raises(ValueError, match=r"y must hold counts of at most 2⁵³.*got 1\.84467e\+19 at site 1"):
        potentials.Poisson([3.0, 2.0**64])


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("basis", [None, "pca", "lanczos", "projected"])
def test_a_subspace_without_sites_is_the_prior(rank, basis):
    model = LatentLinearModel([GaussianFactor(cov=2.0, dim=3)])
    post = infer(model, engines.GaussianKL(covariance="subspace", rank=rank, basis=basis))
    assert post.converged
    np.testing.assert_allclose(post.covariance(), 2.0 * np.eye(3), atol=1e-9)
    assert post.log_evidence == pytest.approx(0.0, abs=1e-9)


def test_a_subspace_of_all_dimensions_without_a_prior_is_full():
    rows, y = RNG.standard_normal((5, 2)), RNG.standard_normal(5)
    model = LatentLinearModel([SiteFactor(rows, potentials.Laplace(y))])
    full = infer(model, "gkl")
    post = infer(model, engines.GaussianKL(covariance="subspace", rank=2))
    assert post.log_evidence == pytest.approx(full.log_evidence, abs=1e-8)
