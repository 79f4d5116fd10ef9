"""Factor analysis on a stream: one pass meets batch maximum likelihood, saved streams go on bit for bit."""

import tracemalloc

import numpy as np
import pytest

from latlin.factor import FactorAnalysis
from latlin.factor.analysis.online import ScaledGradient
from latlin.factor.analysis.stream import FactorStream, OnlineEM, WarmUp, start_state


def known_model(d, rank=5, n=20_000, seed=0):
    rng = np.random.default_rng(seed)
    F, psi, mean = rng.standard_normal((rank, d)), rng.uniform(0.5, 2.0, d), 3.0 * rng.standard_normal(d)

    def draw(size):
        return mean + rng.standard_normal((size, rank)) @ F + np.sqrt(psi) * rng.standard_normal((size, d))

    return draw(n), draw(4000), F.T @ F + np.diag(psi)


def error(model, truth):
    return np.linalg.norm(model.get_covariance() - truth) / np.linalg.norm(truth)


@pytest.mark.parametrize("d", [50, 500])
def test_a_single_pass_meets_batch_maximum_likelihood(d):
    X, held_out, truth = known_model(d)
    batch = FactorAnalysis(5).fit(X)
    best, least = batch.score(held_out), error(batch, truth)
    cases = [
        ("online-em", 32, 0),
        ("online-em", 500, 1),
        ("online-em", 7, 2),
        ("gradient", 32, 0),
        ("gradient", 500, 1),
    ]
    for method, size, seed in cases:
        model = FactorAnalysis(5, method=method, batch_size=size, random_state=seed).fit(X)
        loss, ratio = (best - model.score(held_out)) / abs(best), error(model, truth) / least
        share, factor = (5e-4, 1.3) if method == "online-em" else (5e-3, 3.0)
        assert loss < share, (method, size, loss)
        assert ratio < factor, (method, size, ratio)
        assert model.log_likelihood_ == pytest.approx(model.score(X) * len(X), rel=1e-9)


def test_observation_by_observation_meets_blocks():
    X, _, truth = known_model(20, rank=2, n=3000)
    batch = FactorAnalysis(2).fit(X)
    single = FactorAnalysis(2, method="online-em", batch_size=1)
    for row in X:
        single.partial_fit(row)
    assert single.n_samples_seen_ == 3000
    assert error(single, truth) < 1.3 * error(batch, truth)
    np.testing.assert_allclose(single.mean_, X.mean(axis=0), rtol=1e-9)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_plain_optimizers_climb(optimizer):
    X, held_out, _ = known_model(20, rank=2, n=4000)
    options = {"method": "gradient", "optimizer": optimizer, "average": True, "random_state": 0, "batch_size": 8}
    early = FactorAnalysis(2, **options).fit(X[:100]).score(held_out)
    late = FactorAnalysis(2, learning_rate=0.1, n_passes=4, **options).fit(X)
    assert late.score(held_out) > early
    best = FactorAnalysis(2).fit(X).score(held_out)
    assert late.score(held_out) > best - 0.05 * abs(best)
    assert np.diff(late.trace_).min() > 0.0


@pytest.mark.parametrize("method", ["online-em", "gradient"])
@pytest.mark.parametrize("noise", ["diagonal", "isotropic"])
@pytest.mark.parametrize("cut", [3, 40])
def test_a_saved_stream_goes_on_bit_for_bit(tmp_path, method, noise, cut):
    X, _, _ = known_model(12, rank=2, n=200)
    X = X.astype(np.float32)
    whole = FactorAnalysis(2, method=method, noise=noise, average=True)
    part = FactorAnalysis(2, method=method, noise=noise, average=True)
    whole.partial_fit(X[:cut])
    part.partial_fit(X[:cut])
    part.save(tmp_path / "stream.npz")
    again = FactorAnalysis.load(tmp_path / "stream.npz")
    whole.partial_fit(X[cut:])
    again.partial_fit(X[cut:])
    np.testing.assert_array_equal(again.components_, whole.components_)
    np.testing.assert_array_equal(again.noise_variance_, whole.noise_variance_)
    np.testing.assert_array_equal(again.mean_, whole.mean_)
    assert again.components_.dtype == np.float32


def test_isotropic_streams_meet_probabilistic_pca():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8000, 2)) @ rng.standard_normal((2, 15)) + 0.7 * rng.standard_normal((8000, 15))
    exact = FactorAnalysis(2, noise="isotropic").fit(X)
    for method in ("online-em", "gradient"):
        model = FactorAnalysis(2, noise="isotropic", method=method, random_state=0).fit(X)
        assert np.ptp(model.noise_variance_) == 0.0
        np.testing.assert_allclose(model.noise_variance_[0], exact.noise_variance_[0], rtol=0.02)
        assert model.log_likelihood_ == pytest.approx(exact.log_likelihood_, rel=1e-3)


def test_a_stream_says_what_is_wrong():
    X, _, _ = known_model(12, rank=2, n=60)
    model = FactorAnalysis(2, method="online-em").partial_fit(X)
    with pytest.raises(ValueError, match="12 features"):
        model.partial_fit(X[:, :5])
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(np.full((1, 12), np.nan))
    with pytest.raises(ValueError, match="n_components"):
        FactorAnalysis(12, method="online-em").partial_fit(X)
    for option in ({"step_power": 0.4}, {"step_offset": -1.0}, {"warm_up": 3}, {"optimizer": "newton"}):
        method = "gradient" if "optimizer" in option else "online-em"
        with pytest.raises(ValueError, match=next(iter(option))):
            FactorAnalysis(2, method=method, **option).partial_fit(X)


@pytest.mark.parametrize("method", [OnlineEM(), ScaledGradient()])
def test_the_warm_up_becomes_the_state_in_place(method):
    dim, rank = 400_000, 10
    rng = np.random.default_rng(0)
    row = rng.standard_normal(dim, dtype=np.float32)
    FactorStream(50, rank, method, dtype=np.float32).update(rng.standard_normal((30, 50)))  # compiles
    tracemalloc.start()
    try:
        stream = FactorStream(dim, rank, method, dtype=np.float32)
        for scale in range(stream.warm_up + 3):
            stream.update(np.float32(1.0 + scale % 7) * row)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert stream.state is not None
    # what is taken in double precision at once has one size for all d; a second copy of the loadings would be d·K·4
    assert peak <= 2.2 * dim * rank * 4 + 4e6


def test_the_start_does_not_depend_on_whose_memory_it_takes():
    rows = np.random.default_rng(1).standard_normal((8, 40))
    waiting = WarmUp(40, 3, 8, np.float64)
    assert waiting.take(rows[:5]) == 5
    assert waiting.take(rows) == 3
    waiting = WarmUp(40, 3, 8, np.float64)
    waiting.take(rows)
    apart = start_state(list(rows), np.empty((3, 40)), np.empty(40), np.empty(40))
    own = waiting.begin()
    for name in ("mean", "loadings", "noise", "gram"):
        np.testing.assert_array_equal(getattr(own, name), getattr(apart, name))
    np.testing.assert_allclose(own.mean, rows.mean(axis=0))
