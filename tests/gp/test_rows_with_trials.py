"""Processes of rows with something beside the target: trials of successes, events of times."""

import numpy as np
import pytest
from scipy.stats import kstest
from sklearn.gaussian_process.kernels import RBF, Matern

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.gp import GaussianProcessRegressor, Inducing, StateSpace, Vecchia, state_space
from latlin.numerics.alerts import MisfitWarning

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


def test_new_rows_are_predicted_among_their_trials(rows):
    X, _, _, wins, trials = rows
    options = {"likelihood": "binomial", "likelihood_params": {"trials": trials}}
    fixed = GaussianProcessRegressor(KERNEL, **options, **GIVEN).fit(X, wins)
    averaged = GaussianProcessRegressor(KERNEL, hyperparameters="integrate", random_state=0, **options).fit(X, wins)
    for model in (fixed, averaged):
        np.testing.assert_allclose(model.predict(X[:4], trials=20), 20.0 * model.predict(X[:4]), rtol=1e-9)
        draws = model.sample_y(X[:4], 20_000, random_state=1, trials=trials[:4])
        mean, sd = model.predict(X[:4], return_std=True, trials=trials[:4])
        np.testing.assert_allclose(draws.mean(axis=1), mean, atol=5.0 * sd.max() / 140.0)
        np.testing.assert_allclose(draws.std(axis=1), sd, rtol=0.05)
        low, high = model.predict_interval(X[:4], 0.8, trials=trials[:4]).T
        inside = np.mean((draws >= low[:, None]) & (draws <= high[:, None]), axis=1)
        assert np.all((inside > 0.65) & (inside < 0.95))
        np.testing.assert_array_equal(
            model.predict_quantiles(X[:4], [0.5], trials=trials[:4])[:, 0], np.quantile(draws, 0.5, axis=1)
        )
        # one number of trials for all rows and the successes of each
        masses = [model.log_predictive_density(X[:1], [[k, 5.0]])[0] for k in range(6)]
        assert np.exp(masses).sum() == pytest.approx(1.0, abs=1e-9)
        assert masses[2] == pytest.approx(model.predictive(X[:1], trials=5.0).log_density([2.0])[0], abs=1e-9)


def test_residuals_count_trials_and_events(rows):
    X, *_ = rows
    at, rng = np.repeat(X, 40, axis=0), np.random.default_rng(3)
    trials, wins = rows[4], rows[3]
    successes = GaussianProcessRegressor(
        KERNEL, likelihood="binomial", likelihood_params={"trials": trials}, **GIVEN
    ).fit(X, wins)
    many = np.repeat(trials, 40)
    drawn = successes.predictive(at, trials=many).sample(1, rng)[0]
    residuals = successes.quantile_residuals(at, np.column_stack([drawn, many]))
    assert kstest(residuals, "norm").pvalue > 1e-3
    time, event = rows[1], rows[2]
    times = GaussianProcessRegressor(
        KERNEL, likelihood="weibull", likelihood_params={"event": event, "shape": 1.5}, **GIVEN
    ).fit(X, time)
    drawn, end = times.predictive(at).sample(1, rng)[0], rng.exponential(1.5, len(at))
    censored = np.column_stack([np.minimum(drawn, end), drawn <= end])
    assert kstest(times.quantile_residuals(at, censored), "norm").pvalue > 1e-3
    # as if the ends of observation were events
    assert kstest(times.quantile_residuals(at, censored[:, 0]), "norm").pvalue < 1e-6
    later = times.log_predictive_density(X[:3], np.column_stack([time[:3], np.zeros(3)]))
    np.testing.assert_allclose(np.exp(later), 1.0 - times.predictive(X[:3]).cdf(time[:3]), rtol=1e-7)


def test_successes_that_vary_more_are_told(rows):
    X, trials, rng = rows[0], np.full(N, 40.0), np.random.default_rng(0)
    options = {"likelihood_params": {"trials": trials}, **GIVEN}
    chance = 1.0 / (1.0 + np.exp(-X[:, 0]))
    varied = rng.binomial(40, rng.beta(2.0 * chance, 2.0 * (1.0 - chance)))
    smooth = RBF(2.0)
    with pytest.warns(MisfitWarning, match="overdispersed: .* try likelihood='beta-binomial'"):
        model = GaussianProcessRegressor(smooth, likelihood="binomial", **options).fit(X, varied)
    assert model.dispersion_ > 3.0
    even = GaussianProcessRegressor(smooth, likelihood="binomial", **options).fit(X, rng.binomial(40, chance))
    assert even.finding_ == ""


def test_what_does_not_belong_to_the_rows_gets_a_sentence(rows):
    X, _, _, wins, trials = rows
    with pytest.raises(ValueError, match=r"trials must have one number per row of X \(40\), got shape \(39,\)"):
        GaussianProcessRegressor(likelihood="binomial", likelihood_params={"trials": trials[1:]}).fit(X, wins)
    options = {"likelihood": "beta-binomial", "likelihood_params": {"trials": trials}}
    with pytest.raises(ValueError, match="validation_grid needs rows without trials or events"):
        GaussianProcessRegressor(validation_grid={"precision": [1.0, 2.0]}, **options).fit(X, wins)
    model = GaussianProcessRegressor(KERNEL, likelihood="binomial", likelihood_params={"trials": trials}, **GIVEN)
    model.fit(X, wins)
    with pytest.raises(ValueError, match=r"trials must be one number or one per row of X \(40\), got shape \(3,\)"):
        model.predict(X, trials=[1, 2, 3])
    with pytest.raises(ValueError, match=r"y must have shape \(n,\) or with columns successes, trials, got shape"):
        model.quantile_residuals(X, np.ones((N, 3)))
    with pytest.raises(ValueError, match=r"successes must hold numbers of at most trials, got 3 .* first in row 1"):
        model.log_predictive_density(X[:2], [[1.0, 2.0], [3.0, 2.0]])
    numbers = GaussianProcessRegressor(KERNEL, **GIVEN).fit(X, wins)
    with pytest.raises(ValueError, match="trials is for successes, got a process with Gaussian likelihood"):
        numbers.predict(X, trials=3)
