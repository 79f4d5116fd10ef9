"""Gaussian processes by Vecchia's density: exact with all neighbours, near with few, every engine and likelihood."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, PairwiseKernel, WhiteKernel

from latlin import infer, load
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor, Vecchia
from latlin.gp import vecchia as module

KERNEL = ConstantKernel(1.3) * Matern([0.3, 0.5], nu=1.5)
FITS = [("gaussian", "auto"), ("student-t", "laplace"), ("poisson", "gkl"), ("poisson", "ep"), ("poisson", "laplace")]


def rows(count=90, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((count, 2))
    y = np.sin(5.0 * X[:, 0]) + 0.1 * rng.standard_normal(count)
    return X, y, rng.random((25, 2))


def fitted(X, y, likelihood, engine, approximation, kernel=KERNEL):
    y = np.round(np.exp(y)) if likelihood == "poisson" else y
    model = GaussianProcessRegressor(
        kernel, likelihood=likelihood, engine=engine, approximation=approximation, hyperparameters="fixed"
    )
    return model.fit(X, y)


def answers(model, new):
    value, slope = model.log_marginal_likelihood(eval_gradient=True)
    mean, sd = model.predict_latent(new, return_std=True)
    return value, slope, mean, sd, model.predict_latent(new, return_cov=True)[1], model.leave_one_out()


@pytest.mark.parametrize(("likelihood", "engine"), FITS)
def test_all_neighbours_are_the_exact_process(likelihood, engine):
    X, y, new = rows()
    exact, all_of_them = (fitted(X, y, likelihood, engine, kind) for kind in ("exact", Vecchia(200)))
    # Gaussian KL stops by the gradient in the coordinates of its form
    tolerance = 1e-5 if engine == "gkl" else 1e-8
    for one, other in zip(answers(exact, new), answers(all_of_them, new), strict=True):
        np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance)
    assert all_of_them.evidence_kind_ == exact.evidence_kind_
    assert "another model" in all_of_them.message_


@pytest.mark.parametrize(("likelihood", "engine"), FITS)
def test_slopes_are_differences(likelihood, engine):
    X, y, _ = rows()
    model = fitted(X, y, likelihood, engine, Vecchia(8), KERNEL + ConstantKernel(0.1))
    slope = model.log_marginal_likelihood(eval_gradient=True)[1]
    for k, unit in enumerate(1e-4 * np.eye(len(slope))):
        ahead, behind = (model.log_marginal_likelihood(model.theta_ + side * unit) for side in (1.0, -1.0))
        assert slope[k] == pytest.approx((ahead - behind) / 2e-4, rel=1e-4, abs=1e-4)


def test_more_neighbours_are_closer():
    X, y, new = rows(300)
    exact = answers(fitted(X, y, "gaussian", "auto", "exact"), new)
    found = [answers(fitted(X, y, "gaussian", "auto", Vecchia(m)), new) for m in (5, 40)]
    apart = [[np.abs(np.asarray(a) - b).max() for a, b in zip(one, exact, strict=True)] for one in found]
    assert all(more < 0.2 * few for few, more in zip(*apart, strict=True))


def test_marginals_of_many_inputs_are_those_of_few(monkeypatch):
    X, y, new = rows()
    model = fitted(X, y, "poisson", "laplace", Vecchia(6))
    by_solves = model.predict_latent(new, return_std=True)
    monkeypatch.setattr(module, "FEW", 3)
    np.testing.assert_allclose(model.predict_latent(new, return_std=True), by_solves, rtol=1e-9)
    np.testing.assert_allclose(model.predict_latent(new), by_solves[0], rtol=1e-12)


def test_equal_inputs_share_a_value(tmp_path):
    X, y, new = rows(40)
    twice, labels = np.concatenate([X, X[:10]]), np.concatenate([y, y[:10] + 0.2])
    merged = fitted(twice, labels, "gaussian", "auto", Vecchia(100))
    exact = fitted(twice, labels, "gaussian", "auto", "exact")
    assert merged.posterior_.model.dim == 40
    assert merged.leave_one_out().shape == (50,)
    np.testing.assert_allclose(merged.predict(new), exact.predict(new), atol=1e-5)
    assert merged.log_evidence_ == pytest.approx(exact.log_evidence_, abs=1e-4)
    merged.save(tmp_path / "merged")
    again = load(tmp_path / "merged")
    np.testing.assert_allclose(again.predict(new), merged.predict(new), atol=1e-9)
    np.testing.assert_allclose(again.leave_one_out(), merged.leave_one_out(), atol=1e-9)


def test_white_noise_of_the_kernel_is_not_shared():
    X, y, new = rows(40)
    twice, labels = np.concatenate([X, X[:10]]), np.concatenate([y, y[:10] + 0.2])
    kernel = KERNEL + WhiteKernel(0.3)
    one, other = (fitted(twice, labels, "gaussian", "auto", kind, kernel) for kind in ("exact", Vecchia(100)))
    assert other.posterior_.model.dim == 50
    for a, b in zip(answers(one, new), answers(other, new), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


def test_learning_begins_with_some_rows_and_goes_on_in_the_learnt_metric(monkeypatch):
    monkeypatch.setattr(module, "FIRST", (60, 80))
    X, y, _ = rows(240)
    y += np.sin(2.0 * X[:, 1])
    kernel = ConstantKernel(1.0) * RBF([1.0, 1.0])
    model = GaussianProcessRegressor(kernel, approximation=Vecchia(10), hyperparameters="maximise", random_state=0)
    model.fit(X, y)
    assert model.converged_
    assert len(model.leave_one_out()) == 240
    lengths = model.kernel_.k2.length_scale
    assert lengths[1] > 1.6 * lengths[0]
    scales = model.process_.fitter.hoods.scales
    assert np.log(scales[1] / scales[0]) == pytest.approx(np.log(lengths[1] / lengths[0]), abs=np.log(1.5))
    exact = GaussianProcessRegressor(kernel, approximation="exact", hyperparameters="maximise").fit(X, y)
    assert model.log_evidence_ == pytest.approx(exact.log_evidence_, abs=2.0)
    np.testing.assert_allclose(model.kernel_.k2.length_scale[0], exact.kernel_.k2.length_scale[0], rtol=0.1)


def test_parameters_may_be_learnt_from_some_rows(monkeypatch):
    monkeypatch.setattr(module, "FIRST", (40, 50))
    X, y, _ = rows(240)
    model = GaussianProcessRegressor(
        ConstantKernel(1.0) * Matern(0.3, nu=1.5), approximation=Vecchia(10, learning_rows=120), random_state=0
    )
    model.fit(X, y)
    fitter = model.process_.fitter
    assert len(fitter.X) == 240
    assert "learnt from at most 120 of the rows" in model.message_
    whole = GaussianProcessRegressor(
        ConstantKernel(1.0) * Matern(0.3, nu=1.5), approximation=Vecchia(10), hyperparameters="maximise"
    ).fit(X, y)
    assert model.log_evidence_ < whole.log_evidence_ + 0.1
    assert model.log_evidence_ == pytest.approx(whole.log_evidence_, abs=10.0)


def test_what_the_search_fitted_last_is_not_fitted_again(monkeypatch):
    X, y, _ = rows(120)
    seen = []

    def fit(model, *args, **options):
        seen.append(model.gaussians[0].log_det)
        return infer(model, *args, **options)

    monkeypatch.setattr(module, "infer", fit)
    kernel = ConstantKernel(1.0) * Matern(0.3, nu=1.5)
    model = GaussianProcessRegressor(kernel, approximation=Vecchia(10), hyperparameters="maximise").fit(X, y)
    assert len(seen) == len(set(seen)) > 3
    assert model.converged_


def test_labels_samples_and_files(tmp_path):
    X, y, new = rows()
    model = GaussianProcessClassifier(approximation="vecchia", hyperparameters="maximise").fit(X, y > 0.0)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_allclose(again.predict_proba(new), model.predict_proba(new), rtol=1e-9)
    np.testing.assert_allclose(again.leave_one_out(), model.leave_one_out(), rtol=1e-9)
    noisy = fitted(X, y, "gaussian", "auto", Vecchia(20))
    draws = noisy.sample_y(new, 4000, random_state=1)
    np.testing.assert_allclose(draws.mean(axis=1), noisy.predict(new), atol=0.1)


def test_a_posterior_can_be_diagnosed():
    X, y, _ = rows(40)
    model = fitted(X, y, "poisson", "gkl", Vecchia(5))
    assert model.posterior_.diagnose(2000, random_state=0).k_hat < 0.7


@pytest.mark.parametrize("kernel", [PairwiseKernel(), Matern(nu=0.7)])
def test_kernels_that_are_not_known_pair_by_pair_are_refused(kernel):
    X, y, _ = rows(20)
    with pytest.raises(ValueError, match="approximation 'vecchia' cannot serve here"):
        fitted(X, y, "gaussian", "auto", "vecchia", kernel)


def test_the_number_of_neighbours_is_whole():
    with pytest.raises(ValueError, match="n_neighbours"):
        Vecchia(n_neighbours=0)


def test_the_training_array_itself_is_predicted_as_a_copy_of_it_is():
    X = np.random.default_rng(0).random((40, 2))
    model = GaussianProcessRegressor(ConstantKernel(1.0) * Matern(0.3, nu=1.5), approximation="vecchia", optimizer=None)
    model.fit(X, np.sin(5 * X[:, 0]))
    np.testing.assert_array_equal(model.predict(X), model.predict(X.copy()))
    np.testing.assert_allclose(model.predict(X), model.posterior_.mean, atol=1e-8)
