"""Binary factors: bounds that rise at every single update and stay below the truth, features found, manners."""

import pickle
from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import latlin
from latlin.factor import BinaryFactorAnalysis
from latlin.factor.binary import model as bm
from latlin.factor.binary.latents import (
    BernoulliField,
    Enumeration,
    RowProblem,
    independent_latents,
    row_values,
    sweep_rows,
)
from latlin.factor.binary.model import STARTS, BinaryOptions, begin_state, drop_superfluous, update_all
from latlin.numerics.ascent import Rules
from reproduction.binary_features import features, images, n_found

POINT, RELEVANT = bm.PointFeatures(), bm.RelevantFeatures()


def options(prior, engine, count=3):
    return BinaryOptions(count, prior, engine, ("random",), 1, None, 1e-6, Rules(), False)


def toy(seed=0, n=40, d=5, k=3):
    rng = np.random.default_rng(seed)
    on = rng.random((n, k)) < 0.4
    return on @ rng.standard_normal((k, d)) + 0.5 * rng.standard_normal((n, d))


def started(prior, seed=0, n=40, d=5, k=3):
    data = bm.make_data(toy(seed, n, d, k), 1e-6)
    activations = np.random.default_rng(seed + 1).uniform(0.1, 0.9, (n, k))
    state = begin_state(data, activations, options(prior, BernoulliField(), k))
    return data, state if prior is POINT else RELEVANT.posterior(state)


@pytest.mark.parametrize("prior", [POINT, RELEVANT], ids=["ml", "ard"])
@pytest.mark.parametrize("seed", range(4))
def test_bound_rises_at_every_single_update(prior, seed):
    data, state = started(prior, seed)
    values = [bm.bound(data, state, prior)]

    def keep(new):
        values.append(bm.bound(data, new, prior))
        return new

    for _ in range(4):
        problem = bm.row_problem(data.rows, state)
        for i in range(state.means.shape[1]):
            means = state.means.copy()
            sweep_rows(means, *problem[:3], np.array([i]), 1, 0, 0.0)
            state = keep(bm.replace_latents(data.rows, state, independent_latents(means)))
        if prior is RELEVANT:
            state = keep(RELEVANT.posterior(state))
            for i in range(len(state.relevance)):
                state = keep(RELEVANT.relevance(state, i))
            state = keep(bm.drop(state, np.flatnonzero(~np.isfinite(state.relevance))))
        else:
            state = keep(POINT.update(state))
        state = keep(bm.update_noise(data, state))
        state = keep(bm.update_probability(state))
    assert np.diff(values).min() > -1e-10 * abs(values[-1])
    assert values[-1] > values[0] + 1.0


def test_updates_stand_at_a_maximum():
    """σ², π, α and M: the bound falls whichever way each is moved from its update."""
    data, state = started(RELEVANT, 3)
    state = bm.update_probability(
        bm.update_noise(data, RELEVANT.update(bm.infer_latents(data, state, BernoulliField())))
    )
    rng = np.random.default_rng(0)
    top = bm.bound(data, bm.update_noise(data, state), RELEVANT)
    for factor in (0.97, 1.03):
        moved = state._replace(noise=bm.update_noise(data, state).noise * factor)
        assert bm.bound(data, moved, RELEVANT) < top
        moved = bm.update_noise(data, state)._replace(probability=state.probability * factor)
        assert bm.bound(data, moved, RELEVANT) < top
    best = RELEVANT.posterior(state)
    for _ in range(5):
        moved = best._replace(features=best.features + 0.01 * rng.standard_normal(best.features.shape))
        assert bm.bound(data, moved, RELEVANT) < bm.bound(data, best, RELEVANT)
    for i in range(len(best.relevance)):
        best = RELEVANT.relevance(best, i)
        for factor in (0.9, 1.1):
            scale = np.where(np.arange(len(best.relevance)) == i, factor, 1.0)
            moved = RELEVANT.posterior(best._replace(relevance=best.relevance * scale))
            assert bm.bound(data, moved, RELEVANT) < bm.bound(data, best, RELEVANT)


def exact_log_likelihood(rows, state):
    """log Σ_s p(s) N(x | Σ s_i μ_i, σ²I), state by state."""
    total = []
    for s in product((0.0, 1.0), repeat=len(state.probability)):
        weight = np.where(s, state.probability, 1.0 - state.probability)
        centre = np.array(s) @ state.features
        total.append(np.log(weight).sum() + multivariate_normal(centre, state.noise).logpdf(rows))
    return logsumexp(total, axis=0)


@pytest.mark.parametrize("seed", range(3))
def test_mean_field_is_below_the_likelihood_and_enumeration_meets_it(seed):
    data, state = started(POINT, seed, k=4)
    for engine in (BernoulliField(), Enumeration()):
        for _ in range(5):
            state = update_all(data, state, options(POINT, engine))
        exact = exact_log_likelihood(data.rows, state).sum()
        value = bm.bound(data, state, POINT)
        if isinstance(engine, Enumeration):
            assert value == pytest.approx(exact, rel=1e-11)
        else:
            assert value < exact


def test_one_factor_makes_mean_field_exact():
    data, state = started(POINT, 5, k=1)
    state = update_all(data, state, options(POINT, BernoulliField()))
    assert bm.bound(data, state, POINT) == pytest.approx(exact_log_likelihood(data.rows, state).sum(), rel=1e-12)


def log_evidence_given(s, x, state):
    """log p(X | S) with the features integrated out: N(0, S diag(1/α) Sᵀ + σ²I) for every column of X."""
    cov = (s / state.relevance) @ s.T + state.noise * np.eye(len(x))
    return multivariate_normal(np.zeros(len(x)), cov).logpdf(x.T).sum()


def test_vb_bound_is_below_the_evidence_by_enumeration():
    data, state = started(RELEVANT, 7, n=4, d=3, k=2)
    parts = []
    for _ in range(3):
        state = bm.infer_latents(data, bm.update_noise(data, RELEVANT.posterior(state)), BernoulliField())
    for bits in product((0.0, 1.0), repeat=8):
        s = np.array(bits).reshape(4, 2)
        weight = np.where(s > 0, state.probability, 1.0 - state.probability)
        parts.append(np.log(weight).sum() + log_evidence_given(s, data.rows, state))
    assert bm.bound(data, state, RELEVANT) < logsumexp(parts)
    assert bm.bound(data, state, RELEVANT) > logsumexp(parts) - 5.0


def test_vb_bound_is_below_an_importance_sampled_evidence():
    data, state = started(RELEVANT, 8, n=25, d=4, k=3)
    for _ in range(30):
        state = update_all(data, state, options(RELEVANT, BernoulliField()))
    rng = np.random.default_rng(0)
    logs = []
    for _ in range(400):
        s = (rng.random(state.means.shape) < state.means).astype(float)
        prior = np.log(np.where(s > 0, state.probability, 1.0 - state.probability)).sum()
        with np.errstate(divide="ignore"):
            proposal = np.log(np.where(s > 0, state.means, 1.0 - state.means)).sum()
        logs.append(prior - proposal + log_evidence_given(s, data.rows, state))
    estimate = logsumexp(logs) - np.log(len(logs))
    weights = np.exp(np.array(logs) - max(logs))
    error = weights.std() / weights.mean() / np.sqrt(len(logs))
    assert bm.bound(data, state, RELEVANT) < estimate + 2.0 * error


def test_removing_a_dead_factor_leaves_the_bound():
    data, state = started(RELEVANT, 9)
    state = update_all(data, state, options(RELEVANT, BernoulliField()))
    k, dim = state.features.shape
    # the same model with one factor more, whose feature is at its prior (α → ∞) and whose latents are at theirs
    alpha = 1e14
    extra = state._replace(
        means=np.hstack([state.means, np.full((40, 1), 0.3)]),
        features=np.vstack([state.features, np.zeros(dim)]),
        covariance=np.block([[state.covariance, np.zeros((k, 1))], [np.zeros((1, k)), np.full((1, 1), 1 / alpha)]]),
        relevance=np.append(state.relevance, alpha),
        probability=np.append(state.probability, 0.3),
    )
    extra = bm.replace_latents(data.rows, extra, independent_latents(extra.means))
    both = bm.bound(data, extra, RELEVANT), bm.bound(data, bm.drop(extra, np.array([k])), RELEVANT)
    assert both[0] == pytest.approx(both[1], abs=1e-8)
    assert both[1] == pytest.approx(bm.bound(data, state, RELEVANT), abs=1e-8)
    found = RELEVANT.update(extra)
    assert len(found.relevance) <= k


@pytest.mark.parametrize("rows", [7, 3000])
def test_kernels_agree_with_plain_loops(rows):
    rng = np.random.default_rng(1)
    k = 5
    half = rng.standard_normal((k, k))
    problem = RowProblem(rng.standard_normal((rows, k)), half @ half.T, rng.standard_normal(k), 0.0)
    means = rng.random((rows, k))
    expected = means.copy()
    for i in range(k):
        others = expected @ problem.coupling[:, i] - expected[:, i] * problem.coupling[i, i]
        expected[:, i] = 1.0 / (1.0 + np.exp(-(problem.offset[i] + problem.field[:, i] - others)))
    sweep_rows(means, *problem[:3], np.arange(k), 1, 0, 0.0)
    np.testing.assert_allclose(means, expected, rtol=1e-11, atol=1e-14)
    out = np.empty(rows)
    row_values(means, *problem[:3], out)
    pair = problem.coupling - np.diag(np.diag(problem.coupling))
    entropy = -(means * np.log(means) + (1 - means) * np.log1p(-means)).sum(axis=1)
    energy = (means * (problem.offset + problem.field)).sum(axis=1) - 0.5 * np.einsum("ni,ij,nj->n", means, pair, means)
    np.testing.assert_allclose(out, energy + entropy, rtol=1e-10)


def test_turning_pairs_raises_the_bound_and_frees_stuck_rows():
    x, _ = images(1)
    model = BinaryFactorAnalysis(8, ard=False, n_init=1, random_state=0).fit(x)
    problem = bm.row_problem(x, model._state())
    start = np.tile(model.probabilities_, (len(x), 1))
    values = []
    for flips in (0, 1, 2, 50):
        means, out = start.copy(), np.empty(len(x))
        sweep_rows(means, *problem[:3], np.arange(8), 500, flips, 1e-12)
        row_values(means, *problem[:3], out)
        values.append(out)
    assert np.diff(values, axis=0).min() > -1e-8
    exact = Enumeration().describe(problem)[1] - problem.log_none
    assert np.mean(exact - values[0] > 1.0) > 0.03
    assert np.mean(exact - values[-1] > 1.0) < 0.5 * np.mean(exact - values[0] > 1.0)
    assert np.all(exact - BernoulliField().describe(problem)[1] + problem.log_none < 1.0)


@pytest.mark.parametrize("seed", range(3))
def test_all_eight_features_are_found(seed):
    x, on = images(seed)
    model = BinaryFactorAnalysis(8, ard=False, n_init=2, random_state=seed).fit(x)
    assert n_found(model.components_) == 8
    assert np.diff(model.trace_, prepend=model.trace_[0]).min() > -1e-7
    assert np.sqrt(model.noise_variance_) == pytest.approx(0.1, rel=0.05)
    which = [int(np.argmin(((f - model.components_) ** 2).sum(axis=1))) for f in features()]
    assert np.mean((model.transform(x)[:, which] > 0.5) == on) > 0.995
    np.testing.assert_allclose(model.probabilities_[which], on.mean(axis=0), atol=0.01)
    assert np.array_equal(model.cut_features()[which], features() > 0.5)
    model.components_ *= -3.0
    assert np.array_equal(model.cut_features(0.6)[which], features() > 0.5)


@pytest.mark.parametrize("seed", range(2))
def test_relevance_finds_how_many(seed):
    model = BinaryFactorAnalysis(24, random_state=seed).fit(images(seed)[0])
    assert model.n_active_ == n_found(model.components_) == 8
    assert model.converged_


def test_superfluous_factors_go():
    x, _ = images(1)
    data = bm.make_data(x, 1e-6)
    settings = options(RELEVANT, BernoulliField(), 24)
    state = begin_state(data, STARTS["nmf"](x, 24, np.random.default_rng(101)), settings)
    for _ in range(40):
        state = update_all(data, state, settings)
    fewer = drop_superfluous(data, state, settings)
    assert len(fewer.probability) < len(state.probability)
    assert bm.bound(data, fewer, RELEVANT) > bm.bound(data, state, RELEVANT)


def test_exact_inference_scores_exactly():
    x = toy(2, n=200)
    model = BinaryFactorAnalysis(3, ard=False, inference="exact", n_init=2, random_state=0).fit(x)
    assert model.evidence_kind_ == "exact"
    np.testing.assert_allclose(model.score_samples(x), exact_log_likelihood(x, model._state()), rtol=1e-9)
    assert model.score_samples(x).sum() == pytest.approx(model.lower_bound_, rel=1e-9)
    rough = BinaryFactorAnalysis(3, ard=False, n_init=2, random_state=0).fit(x)
    assert rough.evidence_kind_ == "lower bound"
    assert rough.lower_bound_ <= exact_log_likelihood(x, rough._state()).sum()
    assert np.all(rough.score_samples(x) <= exact_log_likelihood(x, rough._state()) + 1e-9)


def test_scores_and_the_bound_share_their_constants():
    x = images(1)[0]
    model = BinaryFactorAnalysis(10, random_state=0).fit(x)
    divergence = RELEVANT.divergence(model._state())
    # new rows get three starts, the training rows went on from one: never less
    assert model.score_samples(x).sum() - divergence == pytest.approx(model.lower_bound_, rel=1e-5)
    assert model.score_samples(x).sum() - divergence > model.lower_bound_ - 1e-4
    assert model.score(x) == pytest.approx(model.score_samples(x).mean())


def test_many_rows_start_on_some():
    x, _ = images(3, n=3000)
    model = BinaryFactorAnalysis(8, n_init=1, random_state=0).fit(x)
    assert n_found(model.components_) == 8


def test_noise_alone_has_no_factor():
    x = np.random.default_rng(0).standard_normal((300, 4))
    model = BinaryFactorAnalysis(5, random_state=0).fit(x)
    assert model.n_active_ == 0
    assert model.transform(x).shape == (300, 0)
    assert model.cut_features().shape == (0, 4)
    noise = (x**2).mean()
    expected = multivariate_normal(np.zeros(4), noise).logpdf(x)
    np.testing.assert_allclose(model.score_samples(x), expected, rtol=1e-12)
    assert model.lower_bound_ == pytest.approx(expected.sum(), rel=1e-12)


def test_negative_features_are_found():
    rng = np.random.default_rng(4)
    truth = 2.0 * rng.standard_normal((4, 10))
    on = rng.random((500, 4)) < 0.4
    model = BinaryFactorAnalysis(8, random_state=0).fit(on @ truth + 0.2 * rng.standard_normal((500, 10)))
    assert model.n_active_ == 4
    worst = max(np.abs(model.components_ - f).max(axis=1).min() for f in truth)
    # a mean over some 200 observations: sd 0.2/√200 per entry, times the inflation of overlapping factors
    assert worst < 0.1


def test_a_background_becomes_a_factor_that_is_always_on():
    x, _ = images(0)
    model = BinaryFactorAnalysis(12, random_state=0).fit(x + 3.0)
    assert model.n_active_ == 9
    assert model.probabilities_[0] > 0.99
    np.testing.assert_allclose(model.components_[0], 3.0, atol=0.1)
    assert n_found(model.components_[1:]) == 8


def test_starts_give_activations():
    x = toy(0, n=60, d=4)
    for name, start in STARTS.items():
        activations = start(x, 6, np.random.default_rng(0))
        assert activations.shape == (60, 6), name
        assert activations.min() > 0.0
        assert activations.max() <= 1.0


def test_draws_follow_the_model_and_come_back():
    x = images(2)[0]
    model = BinaryFactorAnalysis(8, n_init=1, random_state=0).fit(x)
    draws, on = model.sample(4000, random_state=1)
    np.testing.assert_allclose(on.mean(axis=0), model.probabilities_, atol=4 * np.sqrt(0.25 / 4000))
    residual = draws - model.inverse_transform(on)
    assert residual.var() == pytest.approx(model.noise_variance_, rel=0.05)
    assert np.mean((model.transform(draws) > 0.5) == on) > 0.99


def test_archives_and_pickles_answer_alike(tmp_path):
    x = images(2)[0][:100]
    model = BinaryFactorAnalysis(8, n_init=1, random_state=0).fit(x)
    model.save(tmp_path / "binary.npz")
    for other in (latlin.load(tmp_path / "binary.npz"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.transform(x), model.transform(x))
        assert other.lower_bound_ == model.lower_bound_
        assert other.get_params() == model.get_params()
    again = BinaryFactorAnalysis(8, n_init=1, random_state=0).fit(x)
    np.testing.assert_array_equal(again.components_, model.components_)
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="is not a readable"):
        BinaryFactorAnalysis.load(tmp_path / "bad.npz")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"n_components": 0}, "n_components must be an integer of at least 1, got 0"),
        ({"n_init": 1.5}, "n_init must be an integer of at least 1"),
        ({"inference": "sampling"}, "inference must be one of"),
        ({"n_components": 30, "inference": "exact"}, "at most 14, got 30"),
        ({"starts": ("svd",)}, "starts must be some of"),
        ({"noise_floor": -1.0}, "noise_floor must be"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"tol": -1.0}, "tol must be"),
    ],
)
def test_bad_options_are_named(given, text):
    with pytest.raises(ValueError, match=text):
        BinaryFactorAnalysis(**given).fit(toy())


def test_bad_data_are_named():
    with pytest.raises(ValueError, match="same row everywhere"):
        BinaryFactorAnalysis(2).fit(np.ones((10, 3)))
    with pytest.raises(ValueError, match="NaN"):
        BinaryFactorAnalysis(2).fit(np.full((10, 3), np.nan))
    model = BinaryFactorAnalysis(3, n_init=1, random_state=0).fit(toy())
    with pytest.raises(ValueError, match="S must have"):
        model.inverse_transform(np.ones((2, 9)))
    with pytest.raises(ValueError, match="level must be a number above 0 and below 1, got 1"):
        model.cut_features(1)
