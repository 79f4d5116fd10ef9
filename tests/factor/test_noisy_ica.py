"""Noisy ICA: a bound that rises at every single update and stays below the evidence, sources found, manners."""

import pickle

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp

import latlin
from latlin.factor import FactorAnalysis, NoisyICA
from latlin.factor.ica import model as im
from latlin.factor.ica.engines import ENGINES, GaussianBlock, Single, add_moments, infer_joint_rows, n_runs
from latlin.factor.ica.fit import begin, normalise_sources, start_by_rotation, update_all
from latlin.factor.ica.model import FAMILIES, LaplaceSource, StudentTSource
from latlin.potentials import Laplace, StudentT
from reproduction.noisy_ica import amari_error, mixture


def rows_of(seed, n=120, d=5, k=3):
    x = mixture(seed, n, k, d).rows
    return x - x.mean(axis=0)


def started(seed, source, factorisation, n=120, d=5, k=3):
    model = NoisyICA(k, source=source, factorisation=factorisation)
    options = model._options(d)
    data = im.make_data(rows_of(seed, n, d, k))
    return data, begin(data, start_by_rotation(data.rows, k, np.random.default_rng(seed)), options), options


class Held(StudentTSource):
    """Shape and scale stay."""

    def fit(self, square, shape, scale, learn):
        return shape, scale


class HeldLaplace(LaplaceSource):
    def fit(self, square, shape, scale, learn):
        return shape, scale


@pytest.mark.parametrize("ard", [True, False])
@pytest.mark.parametrize("source", ["student-t", "laplace"])
@pytest.mark.parametrize("seed", range(2))
def test_bound_rises_at_every_single_update_of_the_block_form(source, seed, ard):
    data, state, options = started(seed, source, "block")
    held = im.SourceModel(Held() if source == "student-t" else HeldLaplace(), False)
    state = GaussianBlock(1).infer(data, state, options.model)
    values = [im.bound(data, state)]
    relevances = [lambda s, k=k: im.relevance_of(s, k) for k in range(3)] if ard else [im.update_slow_relevance]
    for turn in range(6):
        moves = [
            lambda s: GaussianBlock(1).infer(data, s, held),
            lambda s: GaussianBlock(1).infer(data, s, options.model),
            lambda s: im.update_mixing(data, s),
            im.tie_noise if turn < 2 else im.update_noise_prior,
            *relevances,
        ]
        for move in moves:
            state = move(state)
            values.append(im.bound(data, state))
    assert np.diff(values).min() > -1e-9 * abs(values[-1])
    assert values[-1] > values[0] + 1.0


@pytest.mark.parametrize("source", ["student-t", "laplace"])
@pytest.mark.parametrize("seed", range(2))
def test_bound_rises_at_every_single_update_of_the_source_form(source, seed):
    data, state, options = started(seed, source, "source")
    state = Single().infer(data, state, options.model)
    values = [im.bound(data, state)]
    for _ in range(6):
        field, precision = im.fields(data.rows, state), im.source_precision(state)
        for k in range(3):
            state = add_moments(data.rows, Single.update(field, precision, state, options.model, k))
            values.append(im.bound(data, state))
        for move in (lambda s: im.update_mixing(data, s), im.update_noise_prior, im.update_separate_relevance):
            state = move(state)
            values.append(im.bound(data, state))
    # the grid over log u is good to about 1e-9 per site
    assert np.diff(values).min() > -1e-8 * abs(values[-1])
    assert values[-1] > values[0] + 1.0


def log_evidence_given(z, x, state):
    """log p(X | Z): every column a linear regression with a normal-inverse-gamma prior, integrated out."""
    n, a0, b0 = len(x), state.prior_shape, state.prior_rate
    precision = np.diag(state.relevance) + z.T @ z
    t = z.T @ x
    b = b0 + 0.5 * ((x**2).sum(axis=0) - np.einsum("kd,kd->d", t, np.linalg.solve(precision, t)))
    a = a0 + 0.5 * n
    ratio = 0.5 * (np.log(state.relevance).sum() - np.linalg.slogdet(precision)[1])
    each = -0.5 * n * np.log(2 * np.pi) + ratio + a0 * np.log(b0) - a * np.log(b) + gammaln(a) - gammaln(a0)
    return each.sum()


@pytest.mark.parametrize("factorisation", ["block", "source"])
@pytest.mark.parametrize("source", ["student-t", "laplace"])
def test_bound_is_below_an_importance_sampled_evidence(source, factorisation):
    data, state, options = started(4, source, factorisation, n=6, d=4, k=1)
    state = state._replace(prior_shape=2.0, prior_rate=2.0 * float(state.prior_rate))
    for _ in range(40):
        state = options.engine.infer(data, im.update_mixing(data, state), options.model)
    rng = np.random.default_rng(0)
    width = 1.5 * np.sqrt(state.squares - state.means**2)
    proposal = stats.t(4.0, state.means, width)
    prior = stats.t(state.shape[0], scale=state.scale[0])
    prior = prior if source == "student-t" else stats.laplace(scale=state.scale[0])
    draws = proposal.rvs(size=(4000, *state.means.shape), random_state=rng)
    logs = prior.logpdf(draws).sum(axis=(1, 2)) - proposal.logpdf(draws).sum(axis=(1, 2))
    logs += [log_evidence_given(z, data.rows, state) for z in draws]
    weights = np.exp(logs - logs.max())
    error = weights.std() / weights.mean() / np.sqrt(len(logs))
    estimate = logsumexp(logs) - np.log(len(logs))
    assert error < 0.3
    assert im.bound(data, state) < estimate + 2.0 * error
    assert im.bound(data, state) > estimate - 8.0


def test_mixing_update_is_the_regression_posterior():
    """Known sources: the bound is the evidence of the linear regressions plus log p(Z)."""
    data, state, _ = started(2, "student-t", "source")
    z = state.means
    state = state._replace(squares=z**2, second=z.T @ z, prior=np.zeros(3), entropy=0.0, prior_shape=2.0)
    state = im.update_mixing(data, state)
    assert im.bound(data, state) == pytest.approx(log_evidence_given(z, data.rows, state), rel=1e-10)


@pytest.mark.parametrize("factorisation", ["block", "source"])
def test_removing_a_dead_source_leaves_the_bound(factorisation):
    data, state, options = started(5, "student-t", factorisation)
    fixed = im.SourceModel(Held(), False)
    state = state._replace(mixing=state.mixing * [1.0, 1.0, 0.0])
    for _ in range(30):
        state = options.engine.infer(data, state, fixed)
        state = state._replace(product=state.product * [[1.0], [1.0], [0.0]])
        state = state._replace(relevance=np.array([1.0, 1.0, im.DEAD * state.second[2, 2]]))
        state = im.update_mixing(data, state)
    state = options.engine.infer(data, state, fixed)
    assert im.find_switched_off(state).tolist() == [2]
    fewer = options.engine.infer(data, im.drop(state, 2), fixed)
    rise = im.bound(data, fewer) - im.bound(data, state)
    # apart from its scale a source without data cannot meet its prior: then removal raises the bound
    assert -1e-6 < rise < (50.0 if factorisation == "block" else 0.05)


def test_joint_rows_agree_with_dense_algebra():
    rng = np.random.default_rng(0)
    n, k = 600, 4
    half = rng.standard_normal((k, k))
    precision, field, weights = half @ half.T, rng.standard_normal((n, k)), rng.gamma(1.0, 1.0, (n, k))
    means, variances = np.empty((n, k)), np.empty((n, k))
    spread, log_dets = np.empty((n_runs(n), k, k)), np.empty(n_runs(n))
    infer_joint_rows(0, n_runs(n), field, precision, weights, means, variances, spread, log_dets)
    inverses = np.linalg.inv(precision + weights[:, :, None] * np.eye(k))
    np.testing.assert_allclose(means, np.einsum("nkl,nl->nk", inverses, field), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(variances, np.diagonal(inverses, axis1=1, axis2=2), rtol=1e-8)
    np.testing.assert_allclose(spread.sum(axis=0), inverses.sum(axis=0), rtol=1e-8)
    assert log_dets.sum() == pytest.approx(np.linalg.slogdet(inverses)[1].sum(), rel=1e-10)


@pytest.mark.parametrize(
    ("source", "shape"), [("student-t", 1.0), ("student-t", 3.0), ("student-t", 50.0), ("laplace", 1.0)]
)
@pytest.mark.parametrize("h", [0.05, 2.0, 400.0])
def test_single_rows_are_the_tilted_moments_of_the_source(source, shape, h):
    b = h * np.array([0.0, 0.3, -2.0, 15.0])
    scale = 0.7
    potential = StudentT(shape, np.zeros(4), scale) if source == "student-t" else Laplace(np.zeros(4), scale)
    tilted = potential.tilted_moments(b / h, np.full(4, 1.0 / h))
    from latlin.factor.ica.engines import _tables

    out = _tables(b, h, im.SourceModel(FAMILIES[source], False), shape, scale)
    log_z = tilted[0] + 0.5 * np.log(2 * np.pi / h) + 0.5 * b**2 / h
    np.testing.assert_allclose(out[0], log_z, atol=1e-7)
    np.testing.assert_allclose(out[1], tilted[1], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(out[2] - out[1] ** 2, tilted[2], rtol=1e-5)


def test_families_are_their_densities():
    z = np.array([0.1, 1.0, 7.0])
    for name, density in (("student-t", stats.t(3.0, scale=2.0)), ("laplace", stats.laplace(scale=2.0))):
        family = FAMILIES[name]
        np.testing.assert_allclose(family.log_density(z**2, 3.0, 2.0), density.logpdf(z), rtol=1e-12)
        rise = (family.log_density(z**2 + 1e-5, 3.0, 2.0) - family.log_density(z**2 - 1e-5, 3.0, 2.0)) / 2e-5
        np.testing.assert_allclose(family.precision(z**2, 3.0, 2.0), -2.0 * rise, rtol=1e-5)


@pytest.mark.parametrize("truth", [(2.0, 0.5), (4.0, 3.0)])
def test_shapes_and_scales_are_fitted(truth):
    square = stats.t(truth[0], scale=truth[1]).rvs(20_000, random_state=0) ** 2
    family, shape, scale = StudentTSource(), 10.0, 1.0
    values = [family.log_density(square, shape, scale).sum()]
    for _ in range(100):
        shape, scale = family.fit(square, shape, scale, True)
        values.append(family.log_density(square, shape, scale).sum())
    assert np.diff(values).min() > -1e-7
    fit = stats.t.fit(np.sqrt(square) * np.where(np.arange(20_000) % 2, 1, -1), floc=0.0)
    assert (shape, scale) == (pytest.approx(fit[0], rel=1e-2), pytest.approx(fit[2], rel=1e-2))


def test_refit_is_the_maximum_of_the_mixing_density():
    shape = StudentTSource().refit(0.9, -0.4, 5.0)

    def value(alpha):
        half = 0.5 * alpha
        return half * np.log(half) - gammaln(half) + half * (-0.4 - 0.9)

    assert value(shape) > max(value(0.99 * shape), value(1.01 * shape))


def test_sources_noise_shapes_and_number_are_found():
    problem = mixture(0)
    model = NoisyICA(7, n_init=1, random_state=0).fit(problem.rows)
    assert model.n_sources_ == 5
    assert amari_error(problem.mixing, model.mixing_) <= 0.04
    assert amari_error(problem.mixing, FactorAnalysis(5).fit(problem.rows).components_.T) > 0.1
    np.testing.assert_allclose(model.noise_variance_, problem.noise, rtol=0.1)
    assert np.all(np.abs(model.shape_ - 3.0) < 2.0)
    assert np.abs(np.median(model.shape_) - 3.0) < 0.5
    assert np.diff(model.trace_, prepend=model.trace_[0]).min() > -1e-6
    parts = model.separate(problem.rows)
    np.testing.assert_allclose(parts.sources, model.transform(problem.rows))
    rebuilt = model.inverse_transform(parts.sources) + parts.residual
    np.testing.assert_allclose(rebuilt, problem.rows, atol=1e-9)


def test_unlike_noise_variances_stay_unlike():
    rng = np.random.default_rng(0)
    truth = np.linspace(0.05, 0.5, 12)
    x = rng.standard_t(3, (2000, 3)) @ rng.standard_normal((3, 12)) + np.sqrt(truth) * rng.standard_normal((2000, 12))
    model = NoisyICA(3, n_init=1, random_state=0).fit(x)
    assert np.corrcoef(model.noise_variance_, truth)[0, 1] > 0.98


@pytest.mark.parametrize("factorisation", ["block", "source"])
def test_scores_and_the_bound_share_their_constants(factorisation):
    x = mixture(1, 400, 2, 4).rows
    model = NoisyICA(2, factorisation=factorisation, n_init=1, random_state=0).fit(x)
    data, engine = im.make_data(np.ascontiguousarray(x - model.mean_)), ENGINES[factorisation]
    fixed = im.SourceModel(Held(), False)
    means, squares, _ = engine.describe(data.rows, model._state(), fixed)
    state = model._state()._replace(means=means, squares=squares, scale_moments=np.full((3, 2), np.nan))
    state = engine.infer(data, state, fixed)
    expected = im.likelihood(data, state) + state.prior.sum() + state.entropy
    assert model.score_samples(x).sum() == pytest.approx(expected, rel=1e-7)
    assert model.score(x) == pytest.approx(expected / 400, rel=1e-7)
    # the bound of the fit: the same, less the divergence of q(A, Ψ), up to the last steps of the latents
    assert model.lower_bound_ < expected
    assert model.lower_bound_ > expected - 100.0


@pytest.mark.parametrize("factorisation", ["block", "source"])
def test_normal_form_leaves_the_bound(factorisation):
    data, state, options = started(3, "student-t", factorisation)
    for _ in range(5):
        state = update_all(data, state, options, im.update_noise_prior)
    plain = normalise_sources(state)
    assert im.bound(data, plain) == pytest.approx(im.bound(data, state), rel=1e-10)
    assert np.all(plain.scale == 1.0)
    assert np.all(plain.mixing[np.abs(plain.mixing).argmax(axis=0), range(3)] > 0)


def test_the_right_density_has_the_higher_bound():
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(1500, 3)) @ rng.standard_normal((3, 6)) + 0.2 * rng.standard_normal((1500, 6))
    bounds = {name: NoisyICA(3, source=name, n_init=1, random_state=0).fit(x).lower_bound_ for name in FAMILIES}
    assert bounds["laplace"] > bounds["student-t"]


def test_many_rows_start_on_some():
    problem = mixture(2, 6000, 3, 6)
    model = NoisyICA(3, n_init=1, random_state=0).fit(problem.rows)
    assert amari_error(problem.mixing, model.mixing_) < 0.04


def test_archives_and_pickles_answer_alike(tmp_path):
    x = mixture(1, 300, 2, 4).rows
    model = NoisyICA(2, n_init=1, random_state=0).fit(x)
    model.save(tmp_path / "ica.npz")
    for other in (latlin.load(tmp_path / "ica.npz"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.transform(x), model.transform(x))
        np.testing.assert_array_equal(other.score_samples(x), model.score_samples(x))
        assert other.get_params() == model.get_params()
    again = NoisyICA(2, n_init=1, random_state=0).fit(x)
    np.testing.assert_array_equal(again.mixing_, model.mixing_)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"n_sources": 0}, "n_sources must be"),
        ({"source": "cauchy"}, "source must be one of"),
        ({"factorisation": "full"}, "factorisation must be one of"),
        ({"n_init": 0}, "n_init must be an integer of at least 1"),
        ({"shape": -1.0}, "shape must be a number of at least"),
        ({"max_iter": 0}, "max_iter must be"),
    ],
)
def test_bad_options_are_named(given, text):
    with pytest.raises(ValueError, match=text):
        NoisyICA(**given).fit(rows_of(0))


def test_bad_data_are_named():
    x = rows_of(0)
    x[:, 2] = 4.0
    with pytest.raises(ValueError, match=r"constant in column\(s\) \[2\]"):
        NoisyICA(2).fit(x)
    model = NoisyICA(2, n_init=1, random_state=0).fit(rows_of(0))
    with pytest.raises(ValueError, match="Z must have"):
        model.inverse_transform(np.ones((2, 4)))


def test_engines_have_names():
    assert set(ENGINES) == {"block", "source"}


def overcomplete(seed, n=1000):
    """Three heavy-tailed sources in two sensors."""
    rng = np.random.default_rng(seed)
    angle = np.pi * (np.arange(3) + 0.3 * rng.random(3)) / 3
    mixing = np.stack([np.cos(angle), np.sin(angle)])
    return rng.standard_t(1.5, (n, 3)) @ mixing.T + 0.05 * rng.standard_normal((n, 2)), mixing


@pytest.mark.parametrize("seed", [1])
def test_more_sources_than_sensors_are_found_from_sparse_codes(seed):
    X, mixing = overcomplete(seed)
    model = NoisyICA(3, shape=2.0, n_init=1, tol=1e-2, random_state=0).fit(X)
    assert model.n_sources_ == 3
    sizes = np.linalg.norm(model.mixing_, axis=0)
    assert sizes.min() > 0.1
    cosines = np.abs(mixing.T @ (model.mixing_ / sizes)).max(axis=1)
    assert cosines.min() > 0.99
    assert np.diff(model.trace_).min(initial=0.0) > -1e-9 * abs(model.lower_bound_)
    assert np.all(model.shape_ == 2.0)
    assert model.transform(X[:4]).shape == (4, 3)


@pytest.mark.parametrize("seed", [0])
def test_the_shapes_of_equation_22_tell_superfluous_sources(seed):
    X = mixture(seed, 400, 3, 6).rows
    model = NoisyICA(6, ard="shape", n_init=1, tol=1e-2, random_state=0).fit(X)
    assert model.n_sources_ == 3
    data = im.make_data(X - X.mean(axis=0))
    options = NoisyICA(6, ard="shape")._options(6)
    state = begin(data, start_by_rotation(data.rows, 6, np.random.default_rng(0)), options)
    values = []
    for _ in range(15):
        state = update_all(data, state, options, im.update_noise_prior)
        values.append(im.bound(data, state))
        np.testing.assert_allclose(state.scale, np.sqrt(2.0 / state.shape), rtol=1e-12)
    assert np.diff(values).min() > -1e-9 * abs(values[-1])
    assert np.ptp(state.relevance) == 0.0


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"ard": "relevance"}, "ard must be"),
        ({"ard": "shape", "source": "laplace"}, "ard='shape' needs"),
        ({"n_sources": 0}, "n_sources"),
    ],
)
def test_wrong_ways_to_count_sources_get_a_sentence(options, match):
    with pytest.raises(ValueError, match=match):
        NoisyICA(**options).fit(overcomplete(0, 20)[0])
