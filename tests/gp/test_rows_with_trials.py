"""Processes of rows with something beside the target: trials of successes, events of times."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import Matern

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.gp import GaussianProcessRegressor, Inducing, StateSpace, Vecchia, state_space

N = 40
KERNEL = Matern(0.8, nu=1.5)
GIVEN = {"optimizer": None, "hyperparameters": "fixed", "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (N, 1))
    time, end = np.exp(np.sin(2.0 * X[:, 0])) * rng.weibull(1.5, N), rng.exponential(1.5, N)
    trials = rng.integers(1, 30, N).astype(float)
    wins = rng.binomial(trials.astype(int), 1.0 / (1.0 + np.exp(-np.sin(2.0 * X[:, 0]))))
    return X, np.minimum(time, end), (time <= end).astype(float), wins.astype(float), trials


def by_hand(X, sites):
    """The same model as a Gaussian prior with one site per row."""
    K = KERNEL(X) + 1e-10 * np.eye(N)
    return infer(LatentLinearModel([GaussianFactor(np.zeros(N), K), SiteFactor(np.eye(N), sites)]), "gkl")


@pytest.mark.parametrize(
    "approximation", ["exact", "state-space", Vecchia(n_neighbours=N - 1), Inducing(n_inducing=N)], ids=str
)
def test_censored_times_are_not_taken_for_events(rows, approximation):
    X, time, event, *_ = rows
    params = {"event": event, "shape": 1.5}
    model = GaussianProcessRegressor(
        KERNEL, likelihood="weibull", likelihood_params=params, approximation=approximation, **GIVEN
    ).fit(X, time)
    assert model.log_evidence_ == pytest.approx(by_hand(X, potentials.Weibull(time, event, 1.5)).log_evidence, abs=1e-4)
    # as a potential that brings its events
    again = GaussianProcessRegressor(
        KERNEL, likelihood=potentials.Weibull(1.0, event, 1.5), approximation=approximation, **GIVEN
    ).fit(X, time)
    assert again.log_evidence_ == pytest.approx(model.log_evidence_, abs=1e-9)
    # new times are those of events
    assert np.all(np.isfinite(model.log_predictive_density(X[:3], time[:3])))


def test_ends_of_intervals_are_used(rows):
    X, time, *_ = rows
    event = np.where(np.arange(N) % 3 == 0, 3.0, 1.0)
    params = {"event": event, "upper": 2.0 * time, "shape": 1.5}
    model = GaussianProcessRegressor(KERNEL, likelihood="weibull", likelihood_params=params, **GIVEN).fit(X, time)
    exact = by_hand(X, potentials.Weibull(time, event, 1.5, 2.0 * time))
    assert model.log_evidence_ == pytest.approx(exact.log_evidence, abs=1e-6)


@pytest.mark.parametrize(
    "approximation",
    [Vecchia(n_neighbours=N - 1, learning_rows=20), Inducing(n_inducing=N, learning_rows=15), StateSpace()],
    ids=str,
)
def test_trials_stay_with_their_rows_where_some_are_learnt_from(rows, approximation, monkeypatch):
    X, _, _, wins, trials = rows
    monkeypatch.setattr(state_space, "RUN", 10)
    options = {"likelihood": "binomial", "likelihood_params": {"trials": trials}, "hyperparameters": "maximise"}
    model = GaussianProcessRegressor(KERNEL, approximation=approximation, random_state=0, **options).fit(X, wins)
    exact = GaussianProcessRegressor(
        model.kernel_, likelihood_params={"trials": trials}, likelihood="binomial", **GIVEN
    )
    assert model.log_evidence_ == pytest.approx(exact.fit(X, wins).log_evidence_, abs=1e-3)
    np.testing.assert_allclose(model.predict(X), exact.predict(X), atol=1e-3)


def test_what_does_not_belong_to_the_rows_gets_a_sentence(rows):
    X, _, _, wins, trials = rows
    with pytest.raises(ValueError, match=r"trials must have one number per row of X \(40\), got shape \(39,\)"):
        GaussianProcessRegressor(likelihood="binomial", likelihood_params={"trials": trials[1:]}).fit(X, wins)
    options = {"likelihood": "beta-binomial", "likelihood_params": {"trials": trials}}
    with pytest.raises(ValueError, match="validation_grid needs rows without trials or events"):
        GaussianProcessRegressor(validation_grid={"precision": [1.0, 2.0]}, **options).fit(X, wins)
