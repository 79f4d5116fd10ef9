"""Mixed-data factor analysis from inside: sites, rows against the engines, gradients, and a bound that never falls."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.factor.mixed.column_kernels import column_value, cuts_value
from latlin.factor.mixed.ep_kernels import tilted
from latlin.factor.mixed.fit import MixedState, Problem, begin, expanded, make_engine
from latlin.factor.mixed.kernels import (
    BINARY,
    COUNT,
    GAUSSIAN,
    LAPLACE,
    ORDINAL,
    REAL,
    STUDENT,
    Prior,
    Sites,
    prior_site,
    site,
    tables,
)

CUTS = np.array([-np.inf, -1.0, 0.5, np.inf, np.inf])
FAMILIES = {
    REAL: lambda y: potentials.Gaussian(y, np.sqrt(0.7)),
    BINARY: lambda y: potentials.Logit(y),
    COUNT: lambda y: potentials.Poisson(y),
    ORDINAL: lambda y: potentials.Ordinal(y, CUTS[1:3], link="logit"),
}
POINTS = [(0.3, 0.5), (-2.0, 4.0), (1.0, 0.0), (3.0, 10.0), (-0.1, 40.0), (0.0, 1.0)]


@pytest.mark.parametrize(("kind", "y"), [(REAL, 0.4), (BINARY, 0), (BINARY, 1), (COUNT, 3), (ORDINAL, 0), (ORDINAL, 1)])
def test_sites_agree_with_the_potentials(kind, y):
    for m, v in POINTS:
        expected = [float(part) for part in FAMILIES[kind](y).expected_log(m, v)]
        np.testing.assert_allclose(site(kind, float(y), 0.7, CUTS, m, v, tables()), expected, rtol=1e-9, atol=1e-9)
        if kind != REAL and 0.0 < v <= 10.0:
            moments = np.array([float(part) for part in FAMILIES[kind](y).tilted_moments(m + 0.2, v)])
            found = tilted(kind, float(y), CUTS, 0.2, m, v, tables())
            np.testing.assert_allclose(found, moments - [0.0, 0.2, 0.0], atol=2e-5)


def test_latents_have_unit_variance_and_their_potentials_expectations():
    scale = np.sqrt(3.0 / 5.0)
    families = {LAPLACE: potentials.Laplace(0.0, np.sqrt(0.5)), STUDENT: potentials.StudentT(5.0, 0.0, scale)}
    for kind, family in families.items():
        for m, v in ((0.3, 0.5), (-2.0, 0.2), (1.0, 0.01), (0.0, 1.0)):
            expected = [float(part) for part in family.expected_log(m, v)]
            np.testing.assert_allclose(prior_site(Prior(kind, 5.0), m, v, tables()), expected, rtol=1e-8, atol=1e-12)
    expected = [float(part) for part in potentials.Gaussian(0.0, 1.0).expected_log(0.7, 0.3)]
    np.testing.assert_allclose(prior_site(Prior(GAUSSIAN, 5.0), 0.7, 0.3, tables()), expected, rtol=1e-12)


def random_problem(seed=0, n=40, k=2, missing=0.2, engine="gkl", prior=GAUSSIAN, penalty=0.3):
    """Two columns of each kind."""
    rng = np.random.default_rng(seed)
    kinds = np.repeat([REAL, BINARY, COUNT, ORDINAL], 2)
    eta = rng.standard_normal((n, k)) @ rng.standard_normal((k, 8))
    rows = np.column_stack(
        [
            eta[:, :2] + 0.7 * rng.standard_normal((n, 2)),
            rng.random((n, 2)) < 1.0 / (1.0 + np.exp(-eta[:, 2:4])),
            rng.poisson(np.exp(0.5 * eta[:, 4:6])),
            np.digitize(eta[:, 6:] + rng.logistic(size=(n, 2)), [-1.0, 0.5]),
        ]
    ).astype(float)
    rows[rng.random(rows.shape) < missing] = np.nan
    levels = np.where(kinds == ORDINAL, 3, 0)
    row_engine = make_engine(engine, Prior(prior, 5.0))
    return Problem(rows, kinds, levels, row_engine, prior == GAUSSIAN, penalty, 1e-3)


def some_sites(problem, k=2, seed=1):
    rng = np.random.default_rng(seed)
    c = problem.rows.shape[1]
    cuts = np.tile([-np.inf, -1.0, 0.5, np.inf], (c, 1))
    return Sites(
        problem.kinds,
        rng.standard_normal((c, k)),
        0.3 * rng.standard_normal(c) * (problem.kinds != ORDINAL),
        np.full(c, 0.7),
        cuts,
    )


@pytest.mark.parametrize(("name", "atol"), [("gkl", 2e-6), ("laplace", 1e-8), ("ep", 2e-6)])
def test_rows_agree_with_the_engines(name, atol):
    problem = random_problem(n=4, missing=0.0)
    sites = some_sites(problem)
    means, covs = np.zeros((4, 2)), np.tile(np.eye(2), (4, 1, 1))
    values = make_engine(name, Prior(GAUSSIAN, 5.0)).infer(problem.rows, sites, means, covs, 100, 1e-12)
    for i, row in enumerate(problem.rows):
        factors = [GaussianFactor(dim=2)]
        for kind, family in FAMILIES.items():
            of = problem.kinds == kind
            factors.append(SiteFactor(sites.loading[of], family(row[of]), offset=sites.intercept[of]))
        post = infer(LatentLinearModel(factors), name)
        assert values[i] == pytest.approx(post.log_evidence, abs=atol)
        np.testing.assert_allclose(means[i], post.mean, atol=20 * atol)
        np.testing.assert_allclose(covs[i], post.covariance(), atol=20 * atol)


@pytest.mark.parametrize("kind", [REAL, BINARY, COUNT, ORDINAL])
def test_column_gradients_match_finite_differences(kind):
    problem = random_problem(n=15)
    rng = np.random.default_rng(0)
    y = problem.rows[:, 2 * kind].copy()
    means, root = rng.standard_normal((15, 2)), 0.5 * rng.standard_normal((15, 2, 2))
    covs = root @ root.transpose(0, 2, 1)
    cuts = np.array([-np.inf, -1.0, 0.5, np.inf])
    slope, curvature = np.empty(3), np.empty((3, 3))

    def value(theta):
        return column_value(y, kind, 0.7, cuts, theta, means, covs, 0.3, tables(), slope, curvature)

    theta = np.array([0.4, -0.6, 0.2])
    free = 2 if kind == ORDINAL else 3
    numeric = [(value(theta + h) - value(theta - h)) / 2e-5 for h in 1e-5 * np.eye(3)[:free]]
    value(theta)
    np.testing.assert_allclose(slope[:free], numeric, rtol=1e-6, atol=1e-7)
    assert np.all(np.linalg.eigvalsh(curvature, UPLO="L") > 0.0)


def test_cut_gradients_match_finite_differences():
    rng = np.random.default_rng(0)
    y, m, s = rng.integers(0, 4, 20).astype(float), rng.standard_normal(20), rng.uniform(0.1, 2.0, 20)
    y[3] = np.nan
    cuts = np.array([-np.inf, -1.0, 0.2, 0.9, np.inf])
    slope, curvature = np.empty(3), np.empty((3, 3))

    def value(inner):
        return cuts_value(y, np.concatenate([[-np.inf], inner, [np.inf]]), 4, m, s, tables(), slope, curvature)

    numeric, bend = np.empty(3), np.empty((3, 3))
    for a, h in enumerate(1e-5 * np.eye(3)):
        up, down = value(cuts[1:4] + h), value(cuts[1:4] - h)
        numeric[a] = (up - down) / 2e-5
        value(cuts[1:4] + h)
        above = slope.copy()
        value(cuts[1:4] - h)
        bend[a] = -(above - slope) / 2e-5
    value(cuts[1:4])
    np.testing.assert_allclose(slope, numeric, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(np.tril(curvature), np.tril(bend), rtol=1e-5, atol=1e-6)


def objective(problem, state):
    """The penalised bound at a state: no E-step."""
    means, covs = state.means.copy(), state.covs.copy()
    values = problem.engine.infer(problem.rows, problem.sites(state), means, covs, 0, 0.0)
    return float(values.sum()) - problem.price(state)


@pytest.mark.parametrize("prior", [GAUSSIAN, LAPLACE, STUDENT])
@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_the_bound_rises_at_every_single_update(prior, penalty):
    problem = random_problem(prior=prior, penalty=penalty, k=2)
    state = begin(problem, 3, np.random.default_rng(0))
    value = objective(problem, state)
    for _ in range(6):
        for update in (
            lambda s: problem.expect(s, 1, 0.0)[0],
            lambda s: problem.maximise(s, 1),
            lambda s: expanded(s, problem.kinds, penalty) if prior == GAUSSIAN else s,
        ):
            state = update(state)
            new = objective(problem, state)
            assert new >= value - 1e-9 * abs(value)
            value = new
    assert np.isfinite(value)


def test_expansion_gains_what_it_says():
    problem = random_problem(penalty=0.0)
    state = problem.expect(begin(problem, 2, np.random.default_rng(0)), 5, 1e-8)[0]
    moved = state._replace(means=state.means + 0.4)
    again = expanded(moved, problem.kinds, 0.0)
    eta = moved.means.mean(axis=0)
    spread = np.cov(moved.means.T, bias=True) + moved.covs.mean(axis=0)
    gain = 0.5 * len(moved.means) * (np.trace(spread) + eta @ eta - 2 - np.linalg.slogdet(spread)[1])
    assert objective(problem, again) - objective(problem, moved) == pytest.approx(gain, rel=1e-8)


@pytest.mark.parametrize("prior", [GAUSSIAN, LAPLACE, STUDENT])
def test_the_bound_is_below_the_exact_likelihood(prior):
    """One latent: log ∫ p(w) ∏ p(v|w) dw on a grid, for every row."""
    problem = random_problem(n=12, prior=prior)
    sites = some_sites(problem, k=1)
    means, covs = np.zeros((12, 1)), np.ones((12, 1, 1))
    bound = problem.engine.infer(problem.rows, sites, means, covs, 200, 1e-12)
    grid = np.linspace(-12.0, 12.0, 8001)
    densities = {
        GAUSSIAN: norm.logpdf(grid),
        LAPLACE: potentials.Laplace(0.0, np.sqrt(0.5)).log_density(grid[:, None])[:, 0],
        STUDENT: potentials.StudentT(5.0, 0.0, np.sqrt(0.6)).log_density(grid[:, None])[:, 0],
    }
    for i, row in enumerate(problem.rows):
        log_p = densities[prior].copy()
        for c in np.flatnonzero(~np.isnan(row)):
            eta = sites.intercept[c] + sites.loading[c, 0] * grid
            log_p += FAMILIES[problem.kinds[c]](row[c]).log_density(eta[:, None])[:, 0]
        exact = logsumexp(log_p) + np.log(grid[1] - grid[0])
        assert bound[i] <= exact + 1e-9
        assert bound[i] >= exact - 0.5


def test_states_are_copied_not_changed():
    problem = random_problem()
    state = begin(problem, 2, np.random.default_rng(0))
    before = MixedState(*(part.copy() for part in state))
    problem.maximise(problem.expect(state, 3, 1e-6)[0])
    for old, new in zip(before, state, strict=True):
        np.testing.assert_array_equal(old, new)
