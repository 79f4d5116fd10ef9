"""Draws of the posterior of a process, ArviZ's groups, intervals of probabilities, and the time that is left."""

import numpy as np
import pytest
from scipy.special import expit, logsumexp
from scipy.stats import norm
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from latlin.distributed.blocks import LocalBlocks
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor, Inducing
from latlin.gp.search import evaluations_left

RNG = np.random.default_rng(0)
X = np.linspace(-2, 2, 30)[:, None]
COUNTS = RNG.poisson(np.exp(np.sin(2 * X[:, 0]) + 1.0)).astype(float)
THREE = np.digitize(np.sin(2 * X[:, 0]) + 0.3 * RNG.standard_normal(30), [-0.4, 0.4])
KERNEL = ConstantKernel(1.0) * Matern(1.0, nu=1.5)


@pytest.mark.parametrize("approximation", ["exact", "vecchia", "state-space", Inducing(inputs=X[::3])])
def test_draws_at_the_rows_have_the_moments_of_the_latent_function(approximation):
    pytest.importorskip("arviz")
    model = GaussianProcessRegressor(KERNEL, likelihood="poisson", approximation=approximation, optimizer=None)
    model.fit(X, COUNTS)
    data = model.to_arviz(4000, random_state=0)
    latent = data.posterior["latent"].values[0]
    mean, std = model.predict_latent(X, return_std=True)
    np.testing.assert_allclose(latent.mean(axis=0), mean, atol=5 * std.max() / np.sqrt(4000))
    np.testing.assert_allclose(latent.std(axis=0), std, rtol=0.06)
    seen = COUNTS * latent - np.exp(latent)
    apart = data.log_likelihood["y"].values[0] - seen
    np.testing.assert_allclose(apart - apart[0], 0.0, atol=1e-9)  # − log y!, the same in every draw
    np.testing.assert_array_equal(data.observed_data["y"].values, COUNTS)
    unknowns = model.sample_posterior(4000, random_state=0)
    np.testing.assert_allclose(unknowns.mean(axis=0), model.posterior_.mean, atol=0.1)


def test_draws_of_an_average_come_with_their_hyperparameters():
    pytest.importorskip("arviz")
    model = GaussianProcessRegressor(KERNEL, hyperparameters="integrate").fit(X, np.sin(2 * X[:, 0]) + 0.1 * COUNTS)
    data = model.to_arviz(3000, random_state=0)
    name = model.hyperparameters_.names[0]
    theta = data.posterior[name].values[0]
    parts = np.array([part.setting.theta[0] for part in model.process_.parts])
    assert set(np.round(theta, 9)) <= set(np.round(parts, 9))
    assert theta.mean() == pytest.approx(model.process_.weights @ parts, abs=0.1)
    mean, std = model.predict_latent(X, return_std=True)
    np.testing.assert_allclose(data.posterior["latent"].values[0].mean(axis=0), mean, atol=0.1 * std.max())


@pytest.mark.parametrize("approximation", ["exact", Inducing(inputs=X[::3])])
def test_draws_of_a_softmax_belong_together(approximation):
    pytest.importorskip("arviz")
    model = GaussianProcessClassifier(KERNEL, approximation=approximation, optimizer=None).fit(X, THREE)
    data = model.to_arviz(500, random_state=0)
    f = data.posterior["latent"].values[0]
    assert f.shape == (500, 30, 3)
    expected = f[:, np.arange(30), THREE] - logsumexp(f, axis=2)
    np.testing.assert_allclose(data.log_likelihood["y"].values[0], expected)
    np.testing.assert_array_equal(data.observed_data["y"].values, THREE)
    wide = model.predict_interval(X, 0.9)
    assert wide.shape == (30, 3, 2)
    inside = (wide[..., 0] < model.predict_proba(X)) & (model.predict_proba(X) < wide[..., 1])
    assert inside.mean() > 0.95


def test_draws_of_a_multinomial_probit_are_of_its_own_probabilities():
    """log P(y | f) and the intervals, against draws of the largest f + noise."""
    pytest.importorskip("arviz")
    model = GaussianProcessClassifier(KERNEL, link="probit", optimizer=None).fit(X, THREE)
    data = model.to_arviz(3, random_state=0)
    f, rng = data.posterior["latent"].values[0], np.random.default_rng(1)
    largest = np.argmax(f[..., None, :] + rng.standard_normal((3, 30, 20_000, 3)), axis=-1)
    shares = (largest == THREE[:, None]).mean(axis=-1)
    np.testing.assert_allclose(np.exp(data.log_likelihood["y"].values[0]), shares, atol=0.02)
    low, high = np.moveaxis(model.predict_interval(X[:2], 0.9), -1, 0)
    mean, std = model.predict_latent(X[:2], return_std=True)
    f = mean + std * rng.standard_normal((400, 2, 3))
    largest = np.argmax(f[..., None, :] + rng.standard_normal((400, 2, 2000, 3)), axis=-1)
    drawn = np.quantile((largest[..., None] == np.arange(3)).mean(axis=-2), [0.05, 0.95], axis=0)
    np.testing.assert_allclose([low, high], drawn, atol=0.06)


def test_intervals_of_a_probability_are_those_of_its_latent_function():
    pytest.importorskip("arviz")
    model = GaussianProcessClassifier(KERNEL, optimizer=None).fit(X, THREE > 0)
    mean, std = model.predict_latent(X, return_std=True)
    low, high = model.predict_interval(X, 0.8).T
    np.testing.assert_allclose(low, expit(mean + std * norm.ppf(0.1)))
    np.testing.assert_allclose(high, expit(mean + std * norm.ppf(0.9)))
    with pytest.raises(ValueError, match=r"coverage must lie strictly between 0 and 1, got 2\.0"):
        model.predict_interval(X, 2.0)
    average = GaussianProcessClassifier(KERNEL, hyperparameters="integrate").fit(X, THREE > 0)
    draws = expit(average.to_arviz(20_000, random_state=0).posterior["latent"].values[0])
    np.testing.assert_allclose(average.predict_interval(X).T, np.quantile(draws, [0.05, 0.95], axis=0), atol=0.02)


@pytest.mark.parametrize(("labels", "link"), [(THREE > 0, "logit"), (THREE, "logit"), (THREE, "probit")])
def test_labels_are_drawn_with_their_probabilities(labels, link):
    model = GaussianProcessClassifier(KERNEL, link=link, optimizer=None).fit(X, labels)
    drawn = model.sample_y(X[::7], 8000, random_state=0)
    shares = np.stack([(drawn == label).mean(axis=1) for label in model.classes_], axis=1)
    np.testing.assert_allclose(shares, model.predict_proba(X[::7]), atol=0.025)


def test_rows_in_blocks_have_no_draws_at_their_rows(monkeypatch):
    model = GaussianProcessRegressor(KERNEL, optimizer=None, random_state=0)
    monkeypatch.setattr("latlin.gp.inducing_model.HELD", 0)
    model.fit(LocalBlocks.of(np.tile(X, (40, 1)), np.tile(COUNTS, 40), rows=500))
    assert model.sample_posterior(3).shape[0] == 3
    with pytest.raises(ValueError, match="to_arviz needs the training rows in memory, got a process of rows in blocks"):
        model.to_arviz(3)


def test_a_search_says_how_long_it_will_take(capsys):
    assert evaluations_left([-100.0], 1e-9) is None
    # gains of 90, 9 and 0.9 shrink tenfold, and 1e-3 of 0.1 … 1 is reached after three more
    assert evaluations_left([-100.0, -10.0, -1.0, -0.1], 1e-3) == 3
    assert evaluations_left([-100.0, -10.0, -20.0, -1.0, -0.1], 1e-3) == 3
    # gains of 8, 4, 2 and 1 halve: 0.015 is below the seventh after them
    assert evaluations_left([0.0, 8.0, 12.0, 14.0, 15.0], 1e-3) == 7
    GaussianProcessRegressor(ConstantKernel(1.0) * RBF(1.0), hyperparameters="maximise", verbose=True).fit(X, COUNTS)
    assert " s left" in capsys.readouterr().err
