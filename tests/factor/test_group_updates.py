"""Group factor analysis from inside: every single update raises the bound, which is what it says it is."""

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.special import digamma, logsumexp
from scipy.stats import gamma, multivariate_normal, norm

from latlin.factor.group.data import fit_scaling, prepare, read_views
from latlin.factor.group.fit import Rotation, Sweep, begin, best_rotation, jump_ahead, rotate, select, turn_factors
from latlin.factor.group.rows import curvature_times
from latlin.factor.group.updates import (
    GammaRelevance,
    GroupModel,
    LowRankRelevance,
    bound,
    bound_parts,
    expected_errors,
    loading_moments,
    update_latents,
    update_loadings,
    update_noise,
    update_relevance,
)

UPDATES = (update_latents, update_loadings, update_relevance, update_noise, rotate)


def draw(seed, n=25, sizes=(6, 5, 4), rank=3, missing=0.0):
    rng = np.random.default_rng(seed)
    z, active = rng.standard_normal((n, rank)), rng.random((len(sizes), rank)) < 0.7
    views = []
    for m, d in enumerate(sizes):
        w = rng.standard_normal((rank, d)) * active[m][:, None]
        views.append(3.0 * m + (1.0 + m) * (z @ w + 0.5 * rng.standard_normal((n, d))))
        views[-1][rng.random((n, d)) < missing] = np.nan
    if missing:
        views[1][: n // 3] = np.nan
    return views


def build(views, rank="full", feature=False, scale="view", prior=(1e-14, 1e-14), noise=(1e-14, 1e-14)):
    layout, rows = read_views(views)
    data = prepare(rows, layout, fit_scaling(rows, layout, scale), feature)
    relevance = GammaRelevance(data.sizes, *prior) if rank == "full" else LowRankRelevance(data.sizes, rank, 0.1)
    return GroupModel(data, relevance, *noise)


def some_state(model, rank, seed=0, sweeps=2):
    state = begin(model, model.data.rows.random(rank, np.random.default_rng(seed)))
    for _ in range(sweeps):
        for update in UPDATES[:4]:
            state = update(model, state)
    return state


@pytest.mark.parametrize("rank", ["full", 0, 1, 2])
@pytest.mark.parametrize("feature", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("sizes", [(6, 5, 4), (20, 17, 12)])
def test_the_bound_rises_at_every_single_update(rank, feature, missing, sizes):
    model = build(draw(1, missing=missing, sizes=sizes), rank, feature)
    rng = np.random.default_rng(2)
    state = begin(model, model.data.rows.random(4, rng))
    value = bound(model, state)
    gains = dict.fromkeys(UPDATES, 0.0)
    for update in (UPDATES[i] for _ in range(8) for i in rng.permutation(5)):
        state = update(model, state)
        new = bound(model, state)
        assert new >= value - 1e-10 * abs(value), update.__name__
        gains[update] += new - value
        value = new
    assert min(gains.values()) > 0.0
    ahead, higher = jump_ahead(model, state, value)
    assert higher >= value - 1e-10 * abs(value)
    assert higher == pytest.approx(bound(model, ahead), rel=1e-12)


def rotation_of(model, state):
    latent = state.latent.T @ state.latent + np.tensordot(model.data.patterns.rows_per, state.latent_cov, axes=1)
    surplus = float(len(state.loading) - len(state.latent))
    return Rotation(latent, loading_moments(model.data, state), surplus, model.relevance, state.theta)


@pytest.mark.parametrize("missing", [0.0, 0.25])
def test_rotation_leaves_the_likelihood_and_moves_the_bound_as_it_says(missing):
    model = build(draw(3, missing=missing))
    state = some_state(model, 3)
    rotation = rotation_of(model, state)
    r = np.eye(3) + 0.3 * np.random.default_rng(0).standard_normal((3, 3))
    after = turn_factors(model, state, r)
    before, moved = bound_parts(model, state), bound_parts(model, after)
    assert moved.likelihood == pytest.approx(before.likelihood, rel=1e-9)
    start = update_relevance(model, state)
    difference = bound(model, after) - bound(model, start)
    rise = rotation.turned(r).value() + rotation.surplus * np.linalg.slogdet(r)[1] - rotation.value()
    assert rise == pytest.approx(difference, abs=1e-7)


@pytest.mark.parametrize("rank", ["full", 1])
def test_first_and_second_derivatives_of_a_rotation_match_differences(rank):
    model = build(draw(3), rank, prior=(0.1, 0.2))
    rotation = rotation_of(model, some_state(model, 3))
    slopes = rotation.slopes()

    def value(x):
        return rotation.turned(expm(x)).value() + rotation.surplus * np.trace(x)

    steps = 1e-4 * np.eye(9).reshape(9, 3, 3)
    first = [(value(h) - value(-h)) / 2e-4 for h in steps]
    np.testing.assert_allclose(slopes.gradient.ravel(), first, rtol=1e-5, atol=1e-5)
    x, out = np.random.default_rng(0).standard_normal((3, 3)), np.empty((3, 3))
    right = slopes.left + rotation.surplus * np.eye(3)
    curvature_times(np.ascontiguousarray(x.T), rotation.latent, slopes.left, right, slopes.columns, out)
    along = 1e-4 * x
    second = [(value(along + h) - value(h - along) - value(along - h) + value(-along - h)) / 4e-8 for h in steps]
    np.testing.assert_allclose(-out.T.ravel(), second, rtol=1e-4, atol=1e-4 * np.abs(out).max())


@pytest.mark.parametrize("missing", [0.0, 0.25])
def test_a_rotation_ends_at_a_maximum(missing):
    model = build(draw(3, n=60, missing=missing))
    state = some_state(model, 4)
    rotation = rotation_of(model, state)
    r, rise = best_rotation(rotation)
    there = rotation.turned(r)
    gradient = there.slopes().gradient / there.slopes().scale
    assert rise > 0.0
    assert np.abs(gradient).max() < 1e-12 * np.sqrt(np.trace(rotation.latent))
    around = 1e-3 * np.random.default_rng(0).standard_normal((20, 4, 4))
    assert all(there.turned(expm(x)).value() + rotation.surplus * np.trace(x) < there.value() for x in around)


def test_gradients_of_the_low_rank_relevance_match_finite_differences():
    rng = np.random.default_rng(0)
    relevance = LowRankRelevance(np.array([5.0, 8.0, 3.0]), 2, 0.3)
    theta, energy = rng.standard_normal((3 + 4, 3)), rng.gamma(2.0, 1.0, (3, 4))
    slope = relevance.objective(theta, energy)[1]
    numeric = np.empty_like(theta)
    for index in np.ndindex(*theta.shape):
        h = np.zeros_like(theta)
        h[index] = 1e-5
        up, down = relevance.objective(theta + h, energy)[0], relevance.objective(theta - h, energy)[0]
        numeric[index] = (up - down) / 2e-5
    np.testing.assert_allclose(slope, numeric, rtol=1e-6, atol=1e-7)
    curvature = np.empty((theta.size, theta.size))
    for row, index in enumerate(np.ndindex(*theta.shape)):
        h = np.zeros_like(theta)
        h[index] = 1e-5
        up, down = relevance.objective(theta + h, energy)[1], relevance.objective(theta - h, energy)[1]
        curvature[row] = (down - up).ravel() / 2e-5
    # but for the directions in which α stands still, all others as the differences say
    walls = relevance.curvature(theta, energy) - curvature
    assert np.linalg.matrix_rank(walls, tol=1e-4) == 2
    best = relevance.update(theta, energy)
    assert np.abs(relevance.objective(best, energy)[1]).max() < 1e-12
    # with as many columns as views any α can be had, but for the pull of the prior: e_mk ≈ D_m/α_mk
    free = LowRankRelevance(relevance.sizes, 3, 1e-9)
    alpha = free.moments(free.start(energy)).mean
    np.testing.assert_allclose(alpha, relevance.sizes[:, None] / energy, rtol=1e-3)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("rank", ["full", 1])
def test_the_bound_is_the_expectation_under_q(missing, rank):
    """⟨log p(X, Θ) − log q(Θ)⟩ by draws from q, term by term with scipy's densities, in the user's units."""
    views = draw(5, n=6, sizes=(3, 2), rank=1, missing=missing)
    model = build(views, rank, feature=True, prior=(2.0, 1.5), noise=(3.0, 0.7))
    state = some_state(model, 2)
    log_weight = log_ratio(model, state, views, 4000, rank)
    error = log_weight.std() / np.sqrt(len(log_weight))
    assert bound(model, state) == pytest.approx(log_weight.mean(), abs=4.5 * error)
    if rank == "full":
        # log p(X) by importance sampling: the bound is below it
        evidence = logsumexp(log_weight) - np.log(len(log_weight))
        weights = np.exp(log_weight - log_weight.max())
        assert bound(model, state) < evidence + 3.0 * weights.std() / weights.mean() / np.sqrt(len(weights))


def log_ratio(model, state, views, draws, rank):
    rng = np.random.default_rng(0)
    data, post = model.data, state
    x = np.concatenate(views, axis=1)
    scale = np.sqrt([np.nanvar(v, axis=0).mean() for v in views])[data.view]
    centre, seen = np.nanmean(x, axis=0), ~np.isnan(x)
    n, k = post.latent.shape
    shape, rate = model.noise_shape, post.noise_rate
    tau = rng.gamma(shape, 1.0 / rate, (draws, len(rate)))
    total = gamma.logpdf(tau, model.noise_a, scale=1.0 / model.noise_b).sum(axis=1)
    total -= gamma.logpdf(tau, shape, scale=1.0 / rate).sum(axis=1)
    if rank == "full":
        a, b = np.broadcast_to(model.relevance.shape, post.theta.shape), post.theta
        alpha = rng.gamma(a, 1.0 / b, (draws, *b.shape))
        total += gamma.logpdf(alpha, 2.0, scale=1.0 / 1.5).sum(axis=(1, 2))
        total -= gamma.logpdf(alpha, a, scale=1.0 / b).sum(axis=(1, 2))
    else:
        alpha = np.broadcast_to(model.relevance.moments(post.theta).mean, (draws, len(data.sizes), k))
        total += norm.logpdf(post.theta[:, :-1], scale=0.1**-0.5).sum()
    w, z = np.empty((draws, len(data.view), k)), np.empty((draws, n, k))
    for d, c in enumerate(data.patterns.column):
        q = multivariate_normal(post.loading[d], post.basis[c] * post.spread[d] @ post.basis[c].T)
        w[:, d] = q.rvs(draws, random_state=rng)
        total += norm.logpdf(w[:, d], scale=alpha[:, data.view[d]] ** -0.5).sum(axis=1) - q.logpdf(w[:, d])
    for i, r in enumerate(data.patterns.row):
        q = multivariate_normal(post.latent[i], post.latent_cov[r])
        z[:, i] = q.rvs(draws, random_state=rng)
        total += norm.logpdf(z[:, i]).sum(axis=1) - q.logpdf(z[:, i])
    mean = centre + scale * np.einsum("sik,sdk->sid", z, w)
    log_p = norm.logpdf(np.where(seen, x, 0.0), mean, scale / np.sqrt(tau)[:, None, data.noise_group])
    return total + np.where(seen, log_p, 0.0).sum(axis=(1, 2))


def test_one_view_with_isotropic_noise_is_variational_pca():
    """Against the updates of variational PCA, written out row by row."""
    (x,) = draw(7, n=40, sizes=(7,), rank=2)
    model = build([x], scale="none")
    state = begin(model, model.data.rows.random(3, np.random.default_rng(0)))
    z, zz = state.latent, state.second[0]
    alpha, tau = model.relevance.moments(state.theta).mean[0], model.noise_precision(state)[0]
    x = x - x.mean(axis=0)
    for _ in range(60):
        for update in UPDATES[1:4]:
            state = update(model, state)
        state = update_latents(model, state)
        cov_w = np.linalg.inv(np.diag(alpha) + tau * zz)
        w = tau * (x.T @ z) @ cov_w
        ww = w.T @ w + x.shape[1] * cov_w
        alpha = (1e-14 + 0.5 * x.shape[1]) / (1e-14 + 0.5 * np.diag(ww))
        error = (x * x).sum() - 2.0 * np.sum((z @ w.T) * x) + np.trace(ww @ zz)
        tau = (1e-14 + 0.5 * x.size) / (1e-14 + 0.5 * error)
        cov_z = np.linalg.inv(np.eye(3) + tau * ww)
        z = tau * x @ w @ cov_z
        zz = z.T @ z + len(x) * cov_z
    np.testing.assert_allclose(state.latent, z, atol=1e-8)
    np.testing.assert_allclose(state.loading, w, atol=1e-8)
    np.testing.assert_allclose(state.latent_cov[0], cov_z, atol=1e-9)
    np.testing.assert_allclose(state.basis[0] * state.spread[0] @ state.basis[0].T, cov_w, atol=1e-9)
    assert model.noise_precision(state)[0] == pytest.approx(tau, rel=1e-9)


def test_patterns_do_not_change_the_numbers():
    """Entries given as complete, or every row its own pattern: expected errors against direct sums."""
    views = draw(9, n=12, missing=0.3)
    model = build(views, feature=True)
    state = some_state(model, 2)
    data = model.data
    seen = ~np.isnan(np.concatenate(views, axis=1))
    direct = np.zeros(len(data.view))
    for i, d in zip(*np.nonzero(seen), strict=True):
        basis = state.basis[data.patterns.column[d]]
        ww = np.outer(state.loading[d], state.loading[d]) + basis * state.spread[d] @ basis.T
        zz = np.outer(state.latent[i], state.latent[i]) + state.latent_cov[data.patterns.row[i]]
        direct[d] += (
            data.rows.x[i, d] ** 2 - 2 * data.rows.x[i, d] * state.loading[d] @ state.latent[i] + np.trace(ww @ zz)
        )
    np.testing.assert_allclose(expected_errors(data, state), direct, rtol=1e-10)
    views = draw(9, n=12)
    views[1][:4] = np.nan
    whole = build(views).data.patterns
    assert whole.seen.shape == (2, 3)
    assert whole.rows_per.tolist() == [8.0, 4.0]
    assert whole.seen.sum() == 5.0


@pytest.mark.parametrize("rank", ["full", 2])
def test_removing_a_dead_factor_leaves_the_bound_of_the_rest(rank):
    model = build(draw(11, n=60, sizes=(8, 7)), rank)
    step = Sweep(model, rotating=True, pruning=False)
    state = begin(model, model.data.rows.random(6, np.random.default_rng(0)))
    for _ in range(250):
        state, _ = step(state)
    size = np.abs(state.loading).max(axis=0)
    dead = int(size.argmin())
    assert size[dead] < 1e-3 * size.max()
    fewer = select(model, state, np.delete(np.arange(6), dead))
    before, after = bound_parts(model, state), bound_parts(model, fewer)
    # ⟨log α⟩ of a gamma posterior is below log⟨α⟩, and the loadings at their prior feel it
    gap = 0.5 * model.data.sizes @ (np.log(0.5 * model.data.sizes) - digamma(0.5 * model.data.sizes))
    expected = gap if rank == "full" else 0.0
    assert sum(after[:4]) - sum(before[:4]) == pytest.approx(expected, abs=0.1)
    assert after.likelihood == pytest.approx(before.likelihood, abs=0.05)
    # what is saved is the divergence of the dead factor's precisions, a constant of the prior
    assert after.relevance > before.relevance
    assert sum(after) > sum(before)
