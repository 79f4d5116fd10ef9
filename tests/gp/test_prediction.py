"""Predictions against dense formulas, brute-force integrals and draws; singular kernels; bad input."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessClassifier as ReferenceClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from gp_problems import KERNEL, dense_prediction, inputs, targets
from latlin import potentials
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor

LIKELIHOODS = ["gaussian", "student-t", "laplace", "cauchy", "logistic", "poisson", "ordinal"]


def fitted(likelihood, n=25, **options):
    X = inputs(n)
    return GaussianProcessRegressor(KERNEL, likelihood=likelihood, optimizer=None, **options).fit(
        X, targets(likelihood, X)
    )


@pytest.mark.parametrize("engine", ["laplace", "ep", "gkl", "lvb"])
def test_outliers_with_negative_precision_are_carried_over(engine):
    gp = fitted("student-t", engine=engine)
    new = inputs(6, seed=9)
    gamma, nu = gp.posterior_.sites
    if engine in {"laplace", "gkl"}:
        assert gamma.min() < 0.0
    mean, cov = dense_prediction(KERNEL(inputs(25)), gamma, nu, KERNEL(new, inputs(25)), KERNEL(new))
    np.testing.assert_allclose(gp.predict(new), mean, atol=1e-7)
    np.testing.assert_allclose(gp.predict(new, return_cov=True)[1], cov, atol=1e-7)
    np.testing.assert_allclose(gp.predict(new, return_std=True)[1], np.sqrt(np.diag(cov)), atol=1e-7)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_latent_at_the_training_inputs_is_the_posterior(likelihood):
    gp = fitted(likelihood)
    mean, std = gp.predict_latent(inputs(25), return_std=True)
    np.testing.assert_allclose(mean, gp.posterior_.mean, atol=1e-6)
    np.testing.assert_allclose(std**2, gp.posterior_.variance, atol=1e-6)


@pytest.mark.parametrize("likelihood", ["student-t", "laplace"])
def test_predictive_density_is_the_integral(likelihood):
    gp = fitted(likelihood)
    new = inputs(2, seed=4)
    mean, std = gp.predict_latent(new, return_std=True)
    site = gp.likelihood_.observe(0.4)

    def integrand(x):
        return norm.pdf(x, mean[0], std[0]) * np.exp(site.log_density(x))

    value = quad(integrand, mean[0] - 9 * std[0], mean[0] + 9 * std[0], points=[0.4], epsabs=1e-12)[0]
    assert gp.log_predictive_density(new, [0.4, 0.4])[0] == pytest.approx(np.log(value), abs=1e-8)
    low, middle, high = gp.predict_quantiles(new).T
    np.testing.assert_allclose(gp.predictive(new).cdf(low), 0.05, atol=1e-9)
    np.testing.assert_allclose(middle, mean, atol=1e-8)
    assert np.all(high > middle)


def test_draws_have_the_predictive_moments():
    gp = fitted("gaussian")
    new = inputs(3, seed=4)
    draws = gp.sample_y(new, 20_000, random_state=0)
    mean, cov = gp.predict(new, return_cov=True)
    assert draws.shape == (3, 20_000)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.05)
    np.testing.assert_allclose(np.cov(draws), cov + float(gp.likelihood_.scale) ** 2 * np.eye(3), atol=0.08)


def test_counts_and_classes_are_predicted_as_such():
    counts, levels = fitted("poisson"), fitted("ordinal")
    new = inputs(5, seed=3)
    mean, std = counts.predict_latent(new, return_std=True)
    np.testing.assert_allclose(counts.predict(new), np.exp(mean + 0.5 * std**2), rtol=1e-8)
    predictive = levels.predictive(new)
    assert predictive.probabilities.shape == (5, 3)
    np.testing.assert_allclose(levels.predict(new), predictive.probabilities @ [0, 1, 2])
    with pytest.raises(ValueError, match="return_cov"):
        levels.predict(new, return_cov=True)


@pytest.mark.parametrize("kernel", [KERNEL, ConstantKernel(30.0) * RBF(0.4)])
def test_logit_laplace_is_scikit_learns(kernel):
    X = inputs(40)
    y = targets("labels", X)
    reference = ReferenceClassifier(kernel, optimizer=None).fit(X, y)
    gp = GaussianProcessClassifier(kernel, engine="laplace", optimizer=None).fit(X, y)
    assert gp.log_evidence_ == pytest.approx(reference.log_marginal_likelihood_value_, abs=1e-8)
    new = inputs(7, seed=2)
    latent = kernel(new, X) @ (y - reference.base_estimator_.pi_)
    np.testing.assert_allclose(gp.predict_latent(new), latent, atol=1e-4)


def test_many_classes_one_against_the_rest():
    X = inputs(45)
    y = np.array(["low", "middle", "high"])[targets("ordinal", X).astype(int)]
    gp = GaussianProcessClassifier(KERNEL, multi_class="one-vs-rest", optimizer=None).fit(X, y)
    assert set(gp.classes_) == {"low", "middle", "high"}
    assert gp.log_evidence_.shape == (3,)
    table = gp.predict_proba(X)
    np.testing.assert_allclose(table.sum(axis=1), 1.0)
    assert gp.score(X, y) > 0.8
    assert gp.leave_one_out().shape == (45, 3)


@pytest.mark.parametrize("engine", ["ep", "gkl"])
def test_leave_one_out_is_near_refitting(engine):
    X = inputs(20)
    y = targets("labels", X)
    found = GaussianProcessClassifier(KERNEL, engine=engine, optimizer=None).fit(X, y).leave_one_out()
    again = []
    for n in range(20):
        others = np.arange(20) != n
        gp = GaussianProcessClassifier(KERNEL, engine=engine, optimizer=None).fit(X[others], y[others])
        again.append(gp.predict_log_proba(X[n : n + 1])[0, int(y[n])])
    # the other sites would move a little; EP's cavities are made for this
    assert np.abs(found - again).max() < (0.02 if engine == "ep" else 0.1)


def test_a_singular_kernel_is_mended_or_refused():
    X = np.concatenate([inputs(15)] * 2)
    y = targets("student-t", X)
    gp = GaussianProcessRegressor(RBF(50.0), likelihood="student-t", optimizer=None).fit(X, y)
    assert 0.0 < gp.jitter_ < 1e-5
    assert np.all(np.isfinite(gp.predict(X)))
    assert np.isfinite(gp.log_evidence_)
    assert fitted("gaussian").jitter_ == 0.0
    indefinite = ConstantKernel(1.0) * RBF(1.0)
    with pytest.raises(ValueError, match="not positive definite"):
        GaussianProcessRegressor(_Negative(indefinite), optimizer=None).fit(X, y)


class _Negative:
    """A kernel that is none."""

    def __init__(self, inner):
        self.inner = inner
        self.n_dims, self.theta, self.bounds = 0, np.zeros(0), np.zeros((0, 2))

    def get_params(self, deep=True):
        return {"inner": self.inner}

    def __call__(self, X, Y=None):
        return -self.inner(X, Y)


def test_a_potential_brings_its_own_parameters():
    X = inputs(25)
    y = targets("student-t", X)
    gp = GaussianProcessRegressor(KERNEL, likelihood=potentials.StudentT(3.0, scale=0.2), optimizer=None).fit(X, y)
    named = GaussianProcessRegressor(
        KERNEL, likelihood="student-t", likelihood_params={"df": 3.0, "scale": 0.2}, optimizer=None
    ).fit(X, y)
    assert gp.log_evidence_ == pytest.approx(named.log_evidence_, abs=1e-10)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"likelihood": "gumbel"}, "likelihood must be one of"),
        ({"likelihood_params": {"tail": 1.0}}, "do not fit"),
        ({"fixed_likelihood": ("df",)}, "fixed_likelihood names"),
        ({"optimizer": "adam"}, "optimizer must be"),
        ({"engine": "map"}, "no Gaussian stand-ins"),
        ({"likelihood": "poisson", "normalise_y": True}, "normalise_y"),
        ({"validation_grid": {"df": [3.0]}}, "validation_grid names"),
    ],
)
def test_bad_input_gets_a_sentence(options, match):
    X = inputs(8)
    with pytest.raises(ValueError, match=match):
        GaussianProcessRegressor(KERNEL, **options).fit(X, np.arange(8.0))


def test_classifier_refuses_what_is_no_link():
    X = inputs(8)
    with pytest.raises(ValueError, match="link must be one of"):
        GaussianProcessClassifier(KERNEL, link="cloglog").fit(X, X[:, 0] > 0)
    with pytest.raises(ValueError, match="potential of labels"):
        GaussianProcessClassifier(KERNEL, link=potentials.Laplace()).fit(X, X[:, 0] > 0)


@pytest.mark.parametrize(
    "estimator", [GaussianProcessRegressor(optimizer=None), GaussianProcessClassifier(optimizer=None)]
)
def test_numbers_whose_squares_overflow_are_refused(estimator):
    X, y = np.arange(6.0)[:, None], np.array([0, 1, 0, 1, 1, 0])
    with pytest.raises(ValueError, match="X must hold numbers of at most"):
        estimator.fit(1e200 * X, y)
    with pytest.raises(ValueError, match="X must hold numbers of at most"):
        estimator.fit(X, y).predict(1e200 * X)


def test_successes_among_trials_of_each_row_predict_chances():
    rng = np.random.default_rng(0)
    x = np.linspace(-2.0, 2.0, 40)[:, None]
    chance, trials = 1.0 / (1.0 + np.exp(-2.0 * np.sin(2.0 * x[:, 0]))), rng.integers(10, 30, 40)
    options = {"likelihood": "binomial", "likelihood_params": {"trials": trials}}
    model = GaussianProcessRegressor(**options).fit(x, rng.binomial(trials, chance))
    np.testing.assert_allclose(model.predict(x[:7]), chance[:7], atol=0.1)
    residuals = model.quantile_residuals(x[:7], np.ones(7), random_state=0)
    assert np.all(np.isfinite(residuals))
