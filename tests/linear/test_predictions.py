"""Predictions against brute force: integrals on a grid, many draws, quantiles of known distributions."""

import numpy as np
import pytest
from scipy.special import expit, ndtr
from scipy.stats import norm, poisson

from latlin.linear import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianMultinomialProbitRegression,
    BayesianOrdinalRegression,
    BayesianPoissonRegression,
    BayesianProbitRegression,
    BayesianSoftmaxRegression,
    RobustRegression,
    SparseRegression,
)
from linear_data import responses

X, Y = responses()
NEW = X[:7] * 1.1
#: a grid for expectations over a standard normal
Z = np.linspace(-12.0, 12.0, 4001)
W = norm.pdf(Z) * (Z[1] - Z[0])


def integrated(f, mean, sd):
    """⟨f(x)⟩ under N(mean, sd²), row by row."""
    return np.array([np.sum(W * f(m + s * Z)) for m, s in zip(mean, sd, strict=True)])


@pytest.mark.parametrize(
    ("model", "link"),
    [(BayesianLogisticRegression(prior_scale=2.0), expit), (BayesianProbitRegression(prior_scale=2.0), ndtr)],
)
def test_probabilities_are_integrals_over_the_posterior(model, link):
    model.fit(X, Y["labels"])
    mean, sd = model.predict_latent(NEW, return_std=True)
    proba = model.predict_proba(NEW)
    np.testing.assert_allclose(proba[:, 1], integrated(link, mean, sd), rtol=1e-7)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(NEW)), proba)
    np.testing.assert_allclose(model.decision_function(NEW), np.log(proba[:, 1] / proba[:, 0]), rtol=1e-6)
    np.testing.assert_allclose(
        model.log_predictive_density(NEW, Y["labels"][:7]),
        np.log(proba[np.arange(7), (Y["labels"][:7] == "yes").astype(int)]),
    )
    low, high = model.predict_interval(NEW, 0.8).T
    np.testing.assert_allclose(low, link(mean + sd * norm.ppf(0.1)), rtol=1e-7)
    np.testing.assert_allclose(high, link(mean + sd * norm.ppf(0.9)), rtol=1e-7)


def test_an_uncertain_posterior_moderates_the_probability_of_its_mean():
    model = BayesianLogisticRegression(prior_scale=3.0).fit(X[:12], Y["labels"][:12])
    far = X[:12] * 3.0
    plug_in = np.abs(expit(model.predict_latent(far)) - 0.5)
    assert np.all(np.abs(model.predict_proba(far)[:, 1] - 0.5) < plug_in + 1e-12)


def test_a_skewed_posterior_is_integrated_as_it_is():
    model = BayesianLogisticRegression(engine="ai-kl", prior_scale=3.0).fit(X[:8, :2], Y["labels"][:8])
    marginals = model.posterior_.project(model._design.rows(NEW[:, :2]))
    grid = np.linspace(-60.0, 60.0, 20_001)
    density = np.stack([marginals.pdf(np.full(len(NEW), x)) for x in grid[::10]])
    expected = np.sum(density * expit(grid[::10])[:, None], axis=0) * (grid[10] - grid[0])
    np.testing.assert_allclose(model.predict_proba(NEW[:, :2])[:, 1], expected, atol=1e-5)


def test_one_against_the_rest_is_normalised_and_consistent():
    model = BayesianLogisticRegression(prior_scale=1.0).fit(X, Y["three"])
    proba = model.predict_proba(NEW)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(NEW), model.classes_[proba.argmax(axis=1)])
    odds = model.decision_function(NEW)
    each = expit(odds)
    np.testing.assert_allclose(proba, each / each.sum(axis=1, keepdims=True), rtol=1e-9)
    assert model.log_evidence_.shape == (3,)
    assert model.coef_.shape == model.coef_std_.shape == (3, 4)
    assert len(model.posterior_) == len(model.trace_) == 3
    assert model.sample_posterior(5, random_state=0).shape == (5, 3, 5)
    assert model.predict_interval(NEW).shape == (7, 3, 2)
    mean, cov = model.predict_latent(NEW, return_cov=True)
    assert mean.shape == (7, 3)
    assert cov.shape == (7, 7, 3)


@pytest.mark.parametrize("link", ["probit", "logit"])
def test_ordered_classes_lie_between_cut_points(link):
    model = BayesianOrdinalRegression(link=link, hyperparameters="maximise").fit(X, Y["three"])
    assert np.all(np.diff(model.cuts_) > 0.0)
    mean, sd = model.predict_latent(NEW, return_std=True)
    F = ndtr if link == "probit" else expit
    below = np.stack([integrated(lambda x, c=c: F(c - x), mean, sd) for c in model.cuts_], axis=1)
    np.testing.assert_allclose(np.cumsum(model.predict_proba(NEW), axis=1)[:, :2], below, rtol=1e-6)
    np.testing.assert_allclose(NEW @ model.coef_[0] + model.intercept_[0], mean)
    draws = model.sample_y(NEW, 4000, random_state=0)
    np.testing.assert_allclose(np.mean(draws[:, :, None] == np.arange(3), axis=1), model.predict_proba(NEW), atol=0.03)
    one = model.sample_y(X, 1, random_state=1)[:, 0]
    residuals = model.quantile_residuals(X, one, random_state=0)
    assert abs(residuals.mean()) < 0.5
    assert 0.8 < residuals.std() < 1.2
    low, high = model.predict_interval(NEW, 0.9).T
    upto = np.column_stack([np.zeros(7), np.cumsum(model.predict_proba(NEW), axis=1)])
    for row, a, b in zip(upto, low, high, strict=True):
        first, last = np.argmax(row[1:] >= 0.05), np.argmax(row[1:] >= 0.95)
        moved = np.concatenate([row[first + 1 :] - row[first], row[last + 1] - row[: last + 1]])
        assert abs(row[b + 1] - row[a] - 0.9) == pytest.approx(np.abs(moved - 0.9).min(), abs=1e-8)


def test_gaussian_predictions_have_closed_forms():
    model = BayesianLinearRegression(hyperparameters="maximise").fit(X, Y["numbers"])
    mean, sd = model.predict(NEW, return_std=True)
    latent, spread = model.predict_latent(NEW, return_std=True)
    np.testing.assert_allclose(mean, latent)
    np.testing.assert_allclose(sd, np.sqrt(spread**2 + model.noise_scale_**2))
    np.testing.assert_allclose(
        model.predict_quantiles(NEW, [0.2, 0.5]), norm.ppf([0.2, 0.5], mean[:, None], sd[:, None])
    )
    np.testing.assert_allclose(model.log_predictive_density(NEW, mean + 0.3), norm.logpdf(0.3, scale=sd))
    _, cov = model.predict(NEW, return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), sd)
    draws = model.sample_y(NEW, 20_000, random_state=0)
    np.testing.assert_allclose(np.cov(draws), cov, atol=0.05 * cov.max())


def test_counts_are_over_dispersed_by_the_posterior():
    model = BayesianPoissonRegression(hyperparameters="maximise").fit(X, Y["counts"])
    latent, spread = model.predict_latent(NEW, return_std=True)
    mean, sd = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(mean, np.exp(latent + 0.5 * spread**2))
    assert np.all(sd > np.sqrt(mean))
    expected = integrated(lambda x: poisson.pmf(3, np.exp(x)), latent, spread)
    np.testing.assert_allclose(np.exp(model.log_predictive_density(NEW, np.full(7, 3))), expected, rtol=1e-6)
    low, high = model.predict_interval(NEW, 0.9).T
    for m, s, a, b in zip(latent, spread, low, high, strict=True):
        upto = np.array([np.sum(W * poisson.cdf(k, np.exp(m + s * Z))) for k in range(-1, 60)])
        first, last = np.argmax(upto[1:] >= 0.05), np.argmax(upto[1:] >= 0.95)
        moved = np.concatenate([upto[first + 1 :] - upto[first], upto[last + 1] - upto[: last + 1]])
        inside = upto[int(b) + 1] - upto[int(a)]
        assert abs(inside - 0.9) == pytest.approx(np.abs(moved - 0.9).min(), abs=1e-6)
    draws = model.sample_y(NEW, 20_000, random_state=0)
    _, cov = model.predict(NEW, return_cov=True)
    np.testing.assert_allclose(np.cov(draws), cov, atol=0.05 * cov.max())
    assert 0.5 < model.dispersion_ < 2.0


@pytest.mark.parametrize("likelihood", ["student-t", "laplace", "cauchy", "logistic", "huber"])
def test_robust_quantiles_have_their_probability(likelihood):
    model = RobustRegression(likelihood, engine="gkl", hyperparameters="maximise").fit(X, Y["outliers"])
    low, high = model.predict_interval(NEW, 0.8).T
    draws = model.sample_y(NEW, 20_000, random_state=0)
    np.testing.assert_allclose(np.mean(draws < low[:, None], axis=1), 0.1, atol=0.012)
    np.testing.assert_allclose(np.mean(draws > high[:, None], axis=1), 0.1, atol=0.012)
    np.testing.assert_allclose(model.predict(NEW), model.predict_quantiles(NEW, 0.5)[:, 0], rtol=1e-6)
    if likelihood == "cauchy":
        assert np.all(np.isinf(model.predict(NEW, return_std=True)[1]))


def test_robust_noise_ignores_what_gaussian_noise_follows():
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 10.0, 40)[:, None]
    y = 2.0 * x[:, 0] + 0.2 * rng.standard_normal(40)
    y[35:] -= 60.0
    slopes = [
        m.fit(x, y).coef_[0] for m in (RobustRegression("student-t", df=2.0, engine="gkl"), BayesianLinearRegression())
    ]
    assert abs(slopes[0] - 2.0) < 0.1 < 1.0 < abs(slopes[1] - 2.0)


def test_decisions_minimise_the_expected_loss():
    model = BayesianLogisticRegression(prior_scale=1.0).fit(X, Y["labels"])
    proba = model.predict_proba(NEW)
    table = np.array([[0.0, 10.0], [1.0, 0.0]])  # leaving a "yes" untreated costs ten times as much
    chosen = model.decide(NEW, ["leave", "treat"], table)
    np.testing.assert_array_equal(chosen, np.where(10.0 * proba[:, 1] > proba[:, 0], "treat", "leave"))
    by_function = model.decide(
        NEW, ["leave", "treat"], lambda a, y: np.where(y == "yes", 10.0 * (a == "leave"), a == "treat")
    )
    np.testing.assert_array_equal(by_function, chosen)
    with pytest.raises(ValueError, match=r"table of shape \(2, 2\)"):
        model.decide(NEW, ["leave", "treat"], np.zeros((3, 2)))
    with pytest.raises(ValueError, match="at least one action"):
        model.decide(NEW, [], table)


def test_numeric_decisions_are_quantiles_of_the_prediction():
    """Pinball loss: the best order quantity is a quantile of the demand."""
    model = BayesianLinearRegression().fit(X, Y["numbers"])
    actions = np.linspace(-3.0, 8.0, 1101)
    chosen = model.decide(NEW, actions, lambda a, y: np.where(y > a, 4.0 * (y - a), a - y))
    np.testing.assert_allclose(chosen, model.predict_quantiles(NEW, 0.8)[:, 0], atol=0.05)
    with pytest.raises(ValueError, match="function of"):
        model.decide(NEW, actions, np.zeros((1101, 2)))


def test_draws_have_the_moments_of_the_posterior():
    model = BayesianLinearRegression().fit(X, Y["numbers"])
    draws = model.sample_posterior(20_000, random_state=0)
    np.testing.assert_allclose(
        draws[:, :4].mean(axis=0), model.coef_, atol=5.0 * model.coef_std_.max() / np.sqrt(20_000)
    )
    np.testing.assert_allclose(draws[:, :4].std(axis=0), model.coef_std_, rtol=0.03)
    assert draws[:, 4].mean() == pytest.approx(model.intercept_, abs=5.0 * draws[:, 4].std() / np.sqrt(20_000))
    np.testing.assert_array_equal(draws, model.sample_posterior(20_000, random_state=0))


def test_bad_questions_get_a_sentence():
    model = BayesianLinearRegression().fit(X, Y["numbers"])
    with pytest.raises(ValueError, match="cannot both be True"):
        model.predict(X, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="coverage must hold probabilities"):
        model.predict_interval(X, 1.5)
    with pytest.raises(ValueError, match=r"offset must have shape \(7,\)"):
        model.predict(NEW, offset=np.zeros(3))
    with pytest.raises(ValueError, match="y must have shape"):
        model.log_predictive_density(NEW, np.zeros(3))
    labels = BayesianLogisticRegression(prior_scale=1.0).fit(X, Y["labels"])
    with pytest.raises(ValueError, match="not in the training data"):
        labels.log_predictive_density(NEW[:1], ["maybe"])


@pytest.mark.parametrize(
    ("model", "response", "message"),
    [
        (BayesianLinearRegression(prior_scale=-1.0), "numbers", "prior_scale must be positive"),
        (BayesianLinearRegression(prior_scale=[1.0, 2.0]), "numbers", r"prior_scale must be 'auto' or have shape"),
        (BayesianLinearRegression(noise_scale="big"), "numbers", "noise_scale must be a positive number or 'auto'"),
        (BayesianLinearRegression(intercept_scale=0.0), "numbers", "intercept_scale must be a number of at least"),
        (RobustRegression("gauss"), "numbers", "likelihood must be one of 'student-t', 'laplace', 'cauchy'"),
        (RobustRegression("laplace", engine="laplace", prior_scale=1.0, noise_scale=1.0), "numbers", "kink"),
        (BayesianLogisticRegression(engine="magic"), "labels", "engine must be one of"),
        (BayesianOrdinalRegression(link="cloglog"), "three", "link must be one of"),
        (BayesianOrdinalRegression(cuts=[0.0, -1.0], prior_scale=1.0), "three", "strictly increasing"),
        (
            BayesianOrdinalRegression(prior_scale=1e30),
            "three",
            r"prior_scale must be at most 1e\+06 where cuts are learnt",
        ),
    ],
)
def test_bad_options_get_a_sentence(model, response, message):
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y[response])


@pytest.mark.parametrize("model", [RobustRegression(prior_scale=1.0), BayesianLinearRegression()])
def test_no_quantiles_are_none(model):
    fitted = model.fit(X, Y["numbers"])
    with pytest.raises(ValueError, match="quantiles must hold probabilities strictly between 0 and 1, got"):
        fitted.predict_quantiles(NEW, [])


def test_bad_data_get_a_sentence():
    with pytest.raises(ValueError, match="sample_weight is zero everywhere"):
        BayesianLinearRegression().fit(X, Y["numbers"], sample_weight=np.zeros(len(X)))
    with pytest.raises(ValueError, match="of at least zero"):
        BayesianLinearRegression().fit(X, Y["numbers"], sample_weight=-np.ones(len(X)))
    with pytest.raises(ValueError, match="offset must be finite"):
        BayesianLinearRegression().fit(X, Y["numbers"], offset=np.full(len(X), np.nan))
    with pytest.raises(ValueError, match="must hold numbers of at least zero"):
        BayesianPoissonRegression().fit(X, -1.0 - Y["counts"])
    with pytest.raises(ValueError, match="Found array with dim 3"):
        BayesianPoissonRegression().fit(X[None], Y["counts"], exposure=np.ones(len(X)))
    with pytest.raises(ValueError, match="NaN"):
        BayesianLinearRegression().fit(np.where(X > 5.0, np.nan, X), Y["numbers"])


@pytest.mark.parametrize("estimator", [BayesianLinearRegression(), RobustRegression(), SparseRegression()])
def test_numbers_whose_squares_overflow_are_refused(estimator):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((10, 2)), rng.standard_normal(10)
    for rows, targets, words in ((1e200 * X, y, "X must hold numbers of at most"), (X, 1e200 * y, "y must hold")):
        with pytest.raises(ValueError, match=words):
            estimator.fit(rows, targets)
    with pytest.raises(ValueError, match="X must hold numbers of at most"):
        estimator.fit(X, y).predict(1e200 * X)


@pytest.mark.parametrize("size", [1e18, 1e100])
@pytest.mark.parametrize(
    ("kind", "response"),
    [
        (BayesianLogisticRegression, "labels"),
        (BayesianProbitRegression, "labels"),
        (BayesianSoftmaxRegression, "labels"),
        (BayesianMultinomialProbitRegression, "labels"),
        (BayesianOrdinalRegression, "three"),
    ],
)
def test_probabilities_of_huge_rows_are_numbers(kind, response, size):
    model = kind(prior_scale=1.0).fit(X, Y[response])
    share = model.predict_proba(size * X)
    assert np.all((share >= 0.0) & (share <= 1.0))
    np.testing.assert_allclose(share.sum(axis=1), 1.0, rtol=1e-9)
    # P(+) is Φ(μ/σ) of a far row, whatever its size
    np.testing.assert_allclose(model.predict_proba(1e3 * size * X), share, atol=1e-6)


@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.MisfitWarning")
def test_exposures_may_have_any_unit():
    rng = np.random.default_rng(0)
    X, y, offset = rng.standard_normal((20, 2)), rng.poisson(3.0, 20), rng.standard_normal(20)
    near, far = (BayesianPoissonRegression(prior_scale=1.0).fit(X, y, offset=offset + shift) for shift in (0.0, 1e4))
    np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-6)
    assert far.log_evidence_ == pytest.approx(near.log_evidence_, abs=1e-6)
    with pytest.raises(ValueError, match="sample_weight must hold finite numbers of at least zero, got -2"):
        BayesianPoissonRegression().fit(X, y, sample_weight=np.full(20, -2.0))
    with pytest.raises(ValueError, match="offset must be finite, got nan"):
        BayesianPoissonRegression().fit(X, y, offset=np.full(20, np.nan))
