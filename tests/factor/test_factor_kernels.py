"""The compiled passes against float64 NumPy, gradients against differences, ψ > 0 whatever comes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from latlin.factor.analysis import kernels
from latlin.factor.analysis.online import AdamAscent, PlainGradient, ScaledGradient, TailAverage
from latlin.factor.analysis.stream import FactorStream, OnlineEM, StepSizes, expect, start_state
from latlin.numerics import threads
from latlin.numerics.linalg import LowRankNormal, weighted_gram


def problem(d=300, rank=3, b=5, count=20, dtype=np.float64, seed=0):
    """A started state and a block of rows."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count + b, rank)) @ rng.standard_normal((rank, d)) + rng.standard_normal((count + b, d))
    rows = (rows + 2.0).astype(dtype)
    state = start_state(
        list(rows[:count]), np.empty((rank, rows.shape[1])), np.empty(rows.shape[1]), np.empty(rows.shape[1])
    )
    return state, rows[count:]


def scatter(y, count):
    """YᵀCY/b with C = I − 11ᵀ/(n+b)."""
    b = len(y)
    return (y.T @ y - np.outer(y.sum(axis=0), y.sum(axis=0)) / (count + b)) / b


@pytest.mark.parametrize(("dtype", "tol"), [(np.float64, 1e-12), (np.float32, 2e-6)])
def test_projection_and_gram(dtype, tol):
    state, rows = problem(dtype=dtype)
    F, psi, mean = (np.asarray(a, dtype=np.float64) for a in (state.loadings, state.noise, state.mean))
    partial = np.empty((kernels.n_runs(300), 3, 5))
    kernels.project_chunks(state.loadings, state.noise, state.mean, rows, partial)
    np.testing.assert_allclose(partial.sum(axis=0), (F / psi) @ (rows - mean).T, rtol=tol, atol=tol)
    np.testing.assert_allclose(state.gram, (F / psi) @ F.T, rtol=tol)
    np.testing.assert_allclose(weighted_gram(state.loadings, state.noise), state.gram, rtol=tol)


@pytest.mark.parametrize(("dtype", "tol"), [(np.float64, 1e-11), (np.float32, 5e-6)])
@pytest.mark.parametrize("b", [1, 5])
def test_an_em_update_is_the_formula(dtype, tol, b):
    state, rows = problem(dtype=dtype, b=b)
    F, psi, mean = (np.array(a, dtype=np.float64) for a in (state.loadings, state.noise, state.mean))
    n, y = state.count, rows - mean
    gamma = OnlineEM().steps.block(n, b)
    sigma = np.linalg.inv(np.eye(3) + (F / psi) @ F.T)
    gain = sigma @ (F / psi)
    s = scatter(y, n)
    H = (1 - gamma) * np.eye(3) + gamma * (sigma + gain @ s @ gain.T)
    A = (1 - gamma) * F + gamma * gain @ s
    F_new = np.linalg.solve(np.linalg.cholesky(H), A)
    moment = (1 - gamma) * (psi + (F**2).sum(axis=0)) + gamma * np.diag(s)
    OnlineEM().advance(state, rows, expect(state, rows))
    np.testing.assert_allclose(state.loadings, F_new, rtol=tol, atol=tol)
    np.testing.assert_allclose(state.noise, moment - (F_new**2).sum(axis=0), rtol=10 * tol)
    np.testing.assert_allclose(state.mean, mean + y.sum(axis=0) / (n + b), rtol=tol)
    np.testing.assert_allclose(
        state.gram, (state.loadings / state.noise.astype(np.float64)) @ state.loadings.T, rtol=tol
    )


def test_threads_do_not_change_the_numbers(monkeypatch):
    results = []
    for count in (1, 3):
        monkeypatch.setattr(threads, "thread_count", lambda count=count: count)
        monkeypatch.setattr(threads, "WORTH", 1.0)
        state, rows = problem(d=20_000)
        OnlineEM().advance(state, rows, expect(state, rows))
        results.append((state.loadings.copy(), state.noise.copy(), state.gram.copy()))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


def mean_log_density(F, beta, mean, rows):
    return multivariate_normal(mean, F.T @ F + np.diag(np.exp(beta))).logpdf(rows).mean()


def test_gradients_match_finite_differences_of_the_density():
    """(3.27)–(3.29): with a huge count C = I and the mean stands still, so a step is rate times the gradient."""
    state, rows = problem(d=6, rank=2, b=4)
    state.count = 10**13
    F, beta, mean = state.loadings.copy(), np.log(state.noise), state.mean.copy()
    rate = 1e-4
    rule = PlainGradient(learning_rate=rate)
    rule.begin(state)
    rule.advance(state, rows, expect(state, rows))
    h = 1e-5
    for index in np.ndindex(F.shape):
        e = np.zeros_like(F)
        e[index] = h
        slope = (mean_log_density(F + e, beta, mean, rows) - mean_log_density(F - e, beta, mean, rows)) / (2 * h)
        assert (state.loadings - F)[index] / rate == pytest.approx(slope, abs=2e-6)
    for i in range(6):
        e = np.zeros(6)
        e[i] = h
        slope = (mean_log_density(F, beta + e, mean, rows) - mean_log_density(F, beta - e, mean, rows)) / (2 * h)
        assert (np.log(state.noise) - beta)[i] / rate == pytest.approx(slope, abs=2e-6)


def test_the_scaled_gradient_is_the_preconditioned_one():
    state, rows = problem(d=6, rank=2, b=4)
    plain, _ = problem(d=6, rank=2, b=4)
    F, psi = state.loadings.copy(), state.noise.copy()
    rate = 1e-3
    rule = PlainGradient(learning_rate=rate)
    rule.begin(plain)
    rule.advance(plain, rows, expect(plain, rows))
    gamma = StepSizes().block(state.count, 4)
    ScaledGradient(learning_rate=rate / gamma).advance(state, rows, expect(state, rows))
    gradient = (plain.loadings - F) / rate
    expected = gradient @ (np.diag(psi) + 0.5 * F.T @ F)
    np.testing.assert_allclose((state.loadings - F) / rate, expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(np.log(state.noise / psi), 2.0 * np.log(plain.noise / psi), rtol=1e-9)


def test_adam_takes_unit_steps_first():
    state, rows = problem(d=6, rank=2, b=4)
    F = state.loadings.copy()
    rule = AdamAscent(learning_rate=1e-3)
    rule.begin(state)
    rule.advance(state, rows, expect(state, rows))
    np.testing.assert_allclose(np.abs(state.loadings - F), 1e-3, rtol=1e-4)


def test_averages_fade_the_start():
    state, rows = problem(d=6, rank=2, b=4)
    rule = ScaledGradient(averaging=TailAverage(8.0))
    rule.begin(state)
    first = state.loadings.copy()
    rule.advance(state, rows, expect(state, rows))
    state.updates = 1
    second = state.loadings.copy()
    rule.advance(state, rows, expect(state, rows))
    expected = second + (9.0 / 10.0) * (state.loadings - second)
    np.testing.assert_allclose(rule.density(state).loadings, expected, rtol=1e-12)
    assert not np.array_equal(first, second)


def test_welford_does_not_depend_on_the_blocks():
    """With γ = 1/t the mean and the total second moment are those of all rows, however they come."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 40)) + 5.0
    for size in (1, 7, 48):
        stream = FactorStream(40, 2, OnlineEM(StepSizes(power=1.0)), warm_up=12)
        stream.update(rows[:12])
        first = stream.state.noise + (stream.state.loadings**2).sum(axis=0)
        for i in range(12, 60, size):
            stream.update(rows[i : i + size])
        s = stream.state
        total = s.noise + (s.loadings**2).sum(axis=0)
        y = rows - rows.mean(axis=0)
        exact = ((y**2).sum(axis=0) + 12 * first - ((rows[:12] - rows[:12].mean(axis=0)) ** 2).sum(axis=0)) / 60
        np.testing.assert_allclose(total, exact, rtol=1e-10)
        np.testing.assert_allclose(s.mean, rows.mean(axis=0), rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([np.float32, np.float64]),
    st.floats(0.51, 1.0),
    st.integers(1, 6),
    st.floats(-6, 6),
    st.sampled_from(["em", "scaled", "sgd"]),
)
def test_noise_stays_positive(seed, dtype, power, size, spread, name):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((50, 9)) * 10.0 ** rng.uniform(-abs(spread), abs(spread) / 2, 9)
    rows[:, 3] = rows[:, 2]  # a Heywood pair
    rows[:, 4] = 1.0  # a coordinate that never moves
    rules = {
        "em": OnlineEM(StepSizes(power=power)),
        "scaled": ScaledGradient(StepSizes(power=power)),
        "sgd": PlainGradient(learning_rate=1e-9),
    }
    stream = FactorStream(9, 2, rules[name], dtype=dtype)
    for i in range(0, 50, size):
        stream.update(rows[i : i + size])
        if stream.state is not None:
            assert (stream.state.noise > 0).all()
            assert np.isfinite(stream.state.loadings).all()
    assert np.isfinite(stream.density().logpdf(rows)).all()
    assert name != "em" or stream.floored >= 1


def test_low_rank_normal_is_the_gaussian():
    rng = np.random.default_rng(0)
    q = LowRankNormal(rng.standard_normal(7), rng.standard_normal((2, 7)), rng.uniform(0.1, 2.0, 7))
    x = rng.standard_normal((4, 7))
    exact = multivariate_normal(q.mean, q.loadings.T @ q.loadings + np.diag(q.noise))
    np.testing.assert_allclose(q.logpdf(x), exact.logpdf(x), rtol=1e-12)
    draws = q.sample(200_000, np.random.default_rng(1), scale=0.5)
    np.testing.assert_allclose(np.cov(draws.T), 0.25 * exact.cov, atol=0.02)


def test_bad_streams_are_named():
    with pytest.raises(ValueError, match="number of factors"):
        FactorStream(5, 5)
    stream = FactorStream(5, 1)
    with pytest.raises(ValueError, match="5 columns"):
        stream.update(np.ones(4))
    with pytest.raises(ValueError, match="finite"):
        stream.update(np.full(5, np.inf))
    with pytest.raises(ValueError, match="at least 2 observations"):
        stream.density()
    with pytest.raises(ValueError, match="not all alike"):
        stream.update(np.ones((5, 5)))
