"""One vocabulary: a name of a fitted attribute or of a method means the same in every estimator."""

import inspect

import numpy as np
import pytest

from latlin import additive, factor, gp, linear, mixture, report

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3))
LATENT = X @ [1.0, -0.5, 0.0]
NUMBERS = LATENT + 0.3 * RNG.standard_normal(60)
TABLE = {"y": NUMBERS, "x": X[:, 0], "g": np.resize(list("abcd"), 60)}
MANY = RNG.standard_normal((80, 2)) @ RNG.standard_normal((2, 6)) + 0.3 * RNG.standard_normal((80, 6))
KINDS = ("exact", "lower bound", "approximation", "none")


def responses(name):
    """What a regression of this kind explains."""
    if name in (
        "BayesianLogisticRegression",
        "BayesianMultinomialProbitRegression",
        "BayesianProbitRegression",
        "BayesianSoftmaxRegression",
    ):
        return np.digitize(LATENT, [-0.5, 0.5])
    if name == "BayesianOrdinalRegression":
        return np.digitize(NUMBERS, [-0.5, 0.5])
    if name in ("BayesianPoissonRegression", "BayesianCountRegression"):
        return np.random.default_rng(3).poisson(np.exp(0.3 * LATENT + 1.0))
    if name in ("BayesianBinomialRegression", "BayesianBetaRegression"):
        share = 1.0 / (1.0 + np.exp(-NUMBERS))
        return np.clip(share, 0.01, 0.99) if "Beta" in name else (share > 0.5).astype(float)
    if name in ("BayesianGammaRegression", "BayesianSurvivalRegression"):
        return np.exp(0.3 * LATENT) * np.random.default_rng(4).gamma(5.0, 0.2, 60)
    return NUMBERS


def fitted_linear(name):
    more = {"order": None} if name == "BayesianOrdinalRegression" else {}
    if name in ("BayesianGammaRegression", "BayesianSurvivalRegression", "BayesianCountRegression"):
        more = {"family": {"G": "gamma", "S": "weibull", "C": "poisson"}[name[8]]}
    return getattr(linear, name)(prior_scale=1.0, **more).fit(X, responses(name))


LINEAR = [name for name in linear.__all__ if hasattr(getattr(linear, name), "fit")]
OTHERS = {
    "GaussianProcessRegressor": lambda: gp.GaussianProcessRegressor(hyperparameters="maximise").fit(X, NUMBERS),
    "GaussianProcessClassifier": lambda: gp.GaussianProcessClassifier(optimizer=None).fit(
        X, np.digitize(LATENT, [0.0])
    ),
    "three classes": lambda: gp.GaussianProcessClassifier(optimizer=None).fit(X, np.digitize(LATENT, [-0.5, 0.5])),
    "AdditiveModel": lambda: additive.AdditiveModel("y ~ x + (1 | g)").fit(TABLE),
    "BayesianGaussianMixture": lambda: mixture.BayesianGaussianMixture(3, random_state=0).fit(MANY),
    "FactorAnalysis": lambda: factor.FactorAnalysis(2).fit(MANY),
    "MatrixFactorization": lambda: factor.MatrixFactorization(1).fit(MANY),
    "TrilinearFactorization": lambda: factor.TrilinearFactorization(1).fit(MANY[:12].reshape(4, 3, -1)),
    "MixedFactorAnalysis": lambda: factor.MixedFactorAnalysis(1, random_state=0).fit(MANY),
    "GroupFactorAnalysis": lambda: factor.GroupFactorAnalysis(2, random_state=0).fit([MANY[:, :3], MANY[:, 3:]]),
    "BinaryFactorAnalysis": lambda: factor.BinaryFactorAnalysis(2, random_state=0).fit(MANY),
    "NoisyICA": lambda: factor.NoisyICA(2, random_state=0).fit(MANY),
}
FITTED = {}


def fitted(name):
    """Every estimator is fitted once."""
    if name not in FITTED:
        FITTED[name] = fitted_linear(name) if name in LINEAR else OTHERS[name]()
    return FITTED[name]


def test_every_estimator_is_walked():
    walked = {*LINEAR, *OTHERS}
    for room in (linear, gp, additive, factor, mixture):
        for name in room.__all__:
            found = getattr(room, name)
            assert not (inspect.isclass(found) and hasattr(found, "fit")) or name in walked, name


@pytest.mark.filterwarnings("ignore::latlin.ConvergenceWarning")
@pytest.mark.parametrize("name", [*LINEAR, *OTHERS])
def test_fitted_attributes_mean_the_same(name):
    model = fitted(name)
    assert isinstance(model.trace_, np.ndarray)
    assert model.trace_.dtype == float
    assert model.evidence_kind_ in KINDS
    assert np.all(np.isfinite(model.log_evidence_))
    assert isinstance(model.converged_, bool | np.bool_)
    assert np.all(np.asarray(model.n_iter_) >= 0)
    for alias in ("lower_bound_", "log_likelihood_"):
        assert getattr(model, alias, model.log_evidence_) == pytest.approx(model.log_evidence_)


@pytest.mark.parametrize(
    "name", [*LINEAR, "GaussianProcessRegressor", "GaussianProcessClassifier", "three classes", "AdditiveModel"]
)
def test_latents_are_asked_for_in_one_way(name):
    model, rows = fitted(name), TABLE if name == "AdditiveModel" else X[:7]
    count = 60 if name == "AdditiveModel" else 7
    mean = model.predict_latent(rows)
    assert isinstance(mean, np.ndarray)
    again, std = model.predict_latent(rows, return_std=True)
    same, cov = model.predict_latent(rows, return_cov=True)
    np.testing.assert_allclose(again, mean)
    np.testing.assert_allclose(same, mean)
    assert std.shape == mean.shape
    assert cov.shape == (count, count, *mean.shape[1:])
    variance = np.einsum("nn...->n...", cov)
    np.testing.assert_allclose(np.sqrt(variance), std, rtol=1e-5, atol=1e-8)
    with pytest.raises(ValueError, match="return_std and return_cov cannot both"):
        model.predict_latent(rows, return_std=True, return_cov=True)


REGRESSORS = [name for name in LINEAR if not hasattr(getattr(linear, name), "predict_proba")]


@pytest.mark.parametrize("name", [*REGRESSORS, "GaussianProcessRegressor", "AdditiveModel"])
def test_predictions_come_with_standard_deviations_of_new_responses(name):
    model, rows = fitted(name), TABLE if name == "AdditiveModel" else X[:7]
    mean, std = model.predict(rows, return_std=True)
    np.testing.assert_array_equal(mean, model.predict(rows))
    if name == "GaussianProcessRegressor":  # with additive noise, as in scikit-learn: that of the function
        np.testing.assert_allclose(std, model.predict_latent(rows, return_std=True)[1])
        return
    is_table = name == "AdditiveModel"
    draws = model.sample_predictive(rows, 4000, random_state=0).T if is_table else model.sample_y(rows, 4000, 0)
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.12, atol=0.02)


@pytest.mark.parametrize("name", [*LINEAR, "GaussianProcessRegressor", "GaussianProcessClassifier", "AdditiveModel"])
def test_signatures_show_what_can_be_asked_for(name):
    model = fitted(name)
    asked = [model.predict_latent] if hasattr(model, "predict_proba") else [model.predict, model.predict_latent]
    for method in asked:
        assert "return_std" in inspect.signature(method).parameters


PROCESSES = ("GaussianProcessRegressor", "GaussianProcessClassifier", "three classes")


@pytest.mark.parametrize("name", [*LINEAR, *PROCESSES, "AdditiveModel"])
def test_intervals_have_columns_low_and_high(name):
    model, rows = fitted(name), TABLE if name == "AdditiveModel" else X[:7]
    wide, narrow = (np.asarray(model.predict_interval(rows, coverage=share), float) for share in (0.9, 0.5))
    assert wide.shape[-1] == 2
    assert len(wide) == (60 if name == "AdditiveModel" else 7)
    assert np.all(wide[..., 0] <= narrow[..., 0] + 1e-9)
    assert np.all(narrow[..., 1] <= wide[..., 1] + 1e-9)


@pytest.mark.parametrize("name", [*LINEAR, "AdditiveModel", *OTHERS])
@pytest.mark.filterwarnings("ignore::latlin.ConvergenceWarning")
def test_every_estimator_speaks_to_arviz(name):
    arviz = pytest.importorskip("arviz")
    more = {"X": rows_of(name)[0]} if name in FACTORS else {}
    found = fitted(name).to_arviz(20, random_state=0, **more)
    for each in found if isinstance(found, list) else [found]:
        variables = each["posterior"] if int(arviz.__version__[0]) >= 1 else each.posterior
        assert variables.sizes["draw"] == 20


@pytest.mark.parametrize("name", [*LINEAR, *PROCESSES, "AdditiveModel"])
def test_draws_of_the_posterior_have_one_row_each(name):
    draws = fitted(name).sample_posterior(5, random_state=0)
    assert len(draws) == 5
    np.testing.assert_array_equal(draws, fitted(name).sample_posterior(5, random_state=0))


FACTORS = [name for name in OTHERS if hasattr(getattr(factor, name, None), "transform")]


@pytest.mark.filterwarnings("ignore::latlin.ConvergenceWarning")
@pytest.mark.parametrize("name", FACTORS)
def test_draws_of_latents_have_the_moments_of_transform(name):
    model, rows = fitted(name), rows_of(name)[0]
    draws = model.sample_posterior(2000, random_state=0, X=rows)
    mean = model.transform(rows)
    assert draws.shape == (2000, *mean.shape)
    same, std = model.transform(rows, return_std=True)
    np.testing.assert_array_equal(same, mean)
    np.testing.assert_allclose(draws.std(axis=0), std, rtol=6.0 / np.sqrt(4000), atol=0.03)
    error = draws.std(axis=0) / np.sqrt(2000)
    assert np.abs(draws.mean(axis=0) - mean).max() < 6.0 * error.max() + 1e-9
    np.testing.assert_array_equal(draws, model.sample_posterior(2000, random_state=0, X=rows))


@pytest.mark.parametrize("covariance", ["full", "tied", "diagonal", "spherical", "fixed"])
@pytest.mark.parametrize("weight_prior", ["dirichlet", "stick-breaking"])
def test_draws_of_a_mixture_have_the_moments_of_its_posterior(covariance, weight_prior):
    rows = np.concatenate([MANY[:, :2], MANY[:, :2] + 6.0])
    model = mixture.BayesianGaussianMixture(2, covariance=covariance, weight_prior=weight_prior, random_state=0).fit(
        rows
    )
    draws = model.sample_posterior(4000, random_state=1)
    assert draws.weights.sum(axis=1) == pytest.approx(np.ones(4000))
    np.testing.assert_allclose(draws.weights.mean(axis=0), model.weights_, atol=0.005)
    np.testing.assert_allclose(draws.means.mean(axis=0), model.means_, atol=0.03)
    # Λ of the draws has the mean of q, so that the mean of its inverses is a little larger
    inverse = np.linalg.inv if covariance in ("full", "tied") else np.reciprocal
    if covariance != "fixed":
        np.testing.assert_allclose(inverse(inverse(draws.covariances).mean(axis=0)), model.covariances_, rtol=0.05)


def rows_of(name):
    """What an estimator was fitted to, as `write_report` takes it."""
    if name in LINEAR:
        return X, responses(name)
    if name in ("GaussianProcessClassifier", "three classes"):
        return X, np.digitize(LATENT, [0.0] if name[0] == "G" else [-0.5, 0.5])
    if name == "GaussianProcessRegressor":
        return X, NUMBERS
    if name == "GroupFactorAnalysis":
        return [MANY[:, :3], MANY[:, 3:]], None
    return (TABLE if name == "AdditiveModel" else MANY), None


def test_tables_with_three_indices_have_no_page(tmp_path):
    with pytest.raises(ValueError, match="no page for tables with three indices"):
        report.write_report(tmp_path / "page.html", fitted("TrilinearFactorization"), MANY)


@pytest.mark.filterwarnings("ignore::latlin.ConvergenceWarning")
@pytest.mark.parametrize("name", [*LINEAR, *(name for name in OTHERS if name != "TrilinearFactorization")])
def test_every_estimator_has_a_report_that_opens_with_a_conclusion(name, tmp_path):
    rows, target = rows_of(name)
    fitted(name).report(tmp_path / "page.html", rows, target, folds=0)
    page = (tmp_path / "page.html").read_text(encoding="utf8")
    before, _, technical = page.partition("Technical part")
    assert "<h2>Conclusion</h2><ul><li>" in before
    shown = before.partition("<body>")[2]
    assert "log evidence" not in shown.lower()
    assert "og evidence" in technical or "most probable" in technical or "no evidence" in technical
    assert "<svg" in shown
