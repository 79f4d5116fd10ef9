"""partial_fit: in any chunking close to the batch fit, exact where everything is Gaussian."""

import numpy as np
import pytest

from latlin.linear import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianPoissonRegression,
    BayesianProbitRegression,
)
from latlin.priors import HalfNormal
from linear_data import predictor, responses

N = 150
X, Y = responses(n=N, d=3)
HELD, HELD_Y = responses(n=200, d=3, seed=7)
MODELS = {
    "logistic": (BayesianLogisticRegression, "labels"),
    "probit": (BayesianProbitRegression, "labels"),
    "poisson": (BayesianPoissonRegression, "counts"),
}


def stream(model, y, sizes, seed=0):
    order = np.random.default_rng(seed).permutation(len(y))
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    start = 0
    for size in sizes:
        rows = order[start : start + size]
        options = {"classes": np.unique(y)} if hasattr(model, "predict_proba") else {}
        model.partial_fit(Z[rows], y[rows], **options)
        start += size
    assert start == len(y)
    return model, Z


@pytest.mark.parametrize("sizes", [[N], [1] * 5 + [N - 5], [30] * 5, [1] * N], ids=len)
@pytest.mark.parametrize("name", MODELS)
def test_a_stream_ends_near_expectation_propagation_of_everything(name, sizes):
    build, response = MODELS[name]
    options = {"prior_scale": 1.0, "standardise": False}
    y = Y[response]
    if len(sizes) == N and name != "probit":
        sizes = [3] * (N // 3)
    model, Z = stream(build(**options), y, sizes)
    batch = build(engine="ep", **options).fit(Z, y)
    gap = np.abs(model.coef_ - batch.coef_) / batch.coef_std_
    assert gap.max() < 0.5
    assert abs(model.intercept_ - batch.intercept_).max() < 0.5 * np.sqrt(batch.posterior_.variance[-1])
    held = (HELD - X.mean(axis=0)) / X.std(axis=0)
    lost = batch.log_predictive_density(held, HELD_Y[response]) - model.log_predictive_density(held, HELD_Y[response])
    assert lost.mean() < 0.02


def test_a_gaussian_stream_is_exact():
    options = {"prior_scale": 1.0, "noise_scale": 0.5, "intercept_scale": 10.0, "standardise": False}
    y = Y["numbers"] - Y["numbers"].mean()
    model, Z = stream(BayesianLinearRegression(**options), y, [1, 99, 50])
    # the intercept's prior is centred on the mean of the first block
    first = y[np.random.default_rng(0).permutation(N)[:1]].mean()
    batch = BayesianLinearRegression(**options).fit(Z, y)
    np.testing.assert_allclose(model.coef_, batch.coef_, rtol=1e-4, atol=1e-5 * (1.0 + abs(first)))
    np.testing.assert_allclose(model.coef_std_, batch.coef_std_, rtol=1e-8)
    assert model.evidence_kind_ == "exact"


def test_log_evidences_of_blocks_add_up():
    options = {"prior_scale": 1.0, "noise_scale": 0.5, "fit_intercept": False, "standardise": False}
    model, Z = stream(BayesianLinearRegression(**options), Y["numbers"], [50, 25, 75])
    assert model.log_evidence_ == pytest.approx(BayesianLinearRegression(**options).fit(Z, Y["numbers"]).log_evidence_)


def test_a_fitted_model_goes_on_and_weights_and_several_classes_work():
    half, Z = N // 2, (X - X.mean(axis=0)) / X.std(axis=0)
    options = {"prior_scale": 1.0, "standardise": False}
    model = BayesianLogisticRegression(engine="laplace", **options).fit(Z[:half], Y["three"][:half])
    before = model.coef_std_.copy()
    model.partial_fit(Z[half:], Y["three"][half:], sample_weight=np.ones(N - half), offset=np.zeros(N - half))
    assert np.all(model.coef_std_ < before)
    whole = BayesianLogisticRegression(engine="ep", **options).fit(Z, Y["three"])
    assert np.abs((model.coef_ - whole.coef_) / whole.coef_std_).max() < 0.5
    assert np.corrcoef(model.predict_latent(Z)[:, 2], predictor(X))[0, 1] > 0.9


def test_the_first_block_of_a_stream_settles_scales_and_classes():
    with pytest.raises(ValueError, match="needs at least 10 rows, got 5"):
        BayesianLinearRegression().partial_fit(X[:5], Y["numbers"][:5])
    with pytest.raises(ValueError, match="at least two classes"):
        BayesianLogisticRegression(prior_scale=1.0).partial_fit(X[:1], Y["labels"][:1])
    model = BayesianLogisticRegression().partial_fit(X[:50], Y["labels"][:50])
    assert model.prior_scale_ != 1.0
    with pytest.raises(ValueError, match="differ from those of the first block"):
        model.partial_fit(X[50:], Y["labels"][50:], classes=["maybe", "no", "yes"])
    with pytest.raises(ValueError, match="not in the training data"):
        model.partial_fit(X[:1], ["maybe"])


def test_what_belongs_to_the_rows_of_a_fit_does_not_outlive_them():
    model = BayesianPoissonRegression(prior_scale=1.0).fit(X[:50], Y["counts"][:50])
    assert model.dispersion_ > 0.0
    assert not hasattr(model.partial_fit(X[50:60], Y["counts"][50:60]), "dispersion_")


@pytest.mark.parametrize("ard", [False, True])
def test_scales_of_a_gaussian_stream_are_learnt_on_from_all_rows(ard):
    priors = {"prior_scale": HalfNormal(3.0), "noise_scale": HalfNormal(2.0)}
    options = {"fit_intercept": False, "standardise": False, "hyperparameters": "maximise", "priors": priors}
    model, Z = stream(BayesianLinearRegression(ard=ard, **options), Y["numbers"], [40, 20, 90])
    batch = BayesianLinearRegression(ard=ard, **options).fit(Z, Y["numbers"])
    np.testing.assert_allclose(model.prior_scale_, batch.prior_scale_, rtol=1e-3)
    np.testing.assert_allclose(model.noise_scale_, batch.noise_scale_, rtol=1e-4)
    np.testing.assert_allclose(model.coef_, batch.coef_, rtol=1e-4)
    np.testing.assert_allclose(model.coef_std_, batch.coef_std_, rtol=1e-4)
    assert model.log_evidence_ == pytest.approx(batch.log_evidence_, abs=1e-5)


def test_a_stream_of_labels_learns_its_scale_on():
    """The first rows hardly say how large the weights are; a scale that stayed would shrink them for ever."""
    rng = np.random.default_rng(3)
    rows, weights = rng.standard_normal((600, 6)), 3.0 * rng.standard_normal(6)
    labels = rng.random(600) < 1.0 / (1.0 + np.exp(-rows @ weights))
    whole = BayesianLogisticRegression(standardise=False, hyperparameters="maximise").fit(rows, labels)
    model = BayesianLogisticRegression(standardise=False)
    scales = []
    for start in range(0, 600, 20):
        model.partial_fit(rows[start : start + 20], labels[start : start + 20], classes=[False, True])
        scales.append(model.prior_scale_)
    assert len(set(scales)) > 5
    assert abs(np.log(scales[-1] / whole.prior_scale_)) < 0.5 * abs(np.log(scales[0] / whole.prior_scale_))
    fixed = BayesianLogisticRegression(standardise=False, prior_scale=scales[0])
    for start in range(0, 600, 20):
        fixed.partial_fit(rows[start : start + 20], labels[start : start + 20], classes=[False, True])
    assert np.linalg.norm(model.coef_ - whole.coef_) < 0.8 * np.linalg.norm(fixed.coef_ - whole.coef_)


def test_scales_that_are_given_stay():
    model, _ = stream(BayesianLinearRegression(prior_scale=0.7), Y["numbers"], [40, 20, 90])
    assert model.prior_scale_ == 0.7
    model, _ = stream(BayesianLinearRegression(noise_scale=0.7), Y["numbers"], [40, 20, 90])
    assert model.noise_scale_ == 0.7
