"""Mixed-data factor analysis from inside: rows against the engines, gradients, families, a bound that never falls."""

import warnings

import numpy as np
import pytest
from scipy.special import logsumexp

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.factor import MixedFactorAnalysis
from latlin.factor.mixed.columns import NOISES, TYPES
from latlin.factor.mixed.fit import ColumnSum, MixedProblem, begin, expand_latents, fit_parameters, make_engine
from latlin.factor.mixed.sites import ColumnSites, gather, restrict
from latlin.numerics.alerts import ConvergenceWarning
from latlin.potentials.families import COUNTS, SUCCESSES

CUTS = np.array([-1.0, 0.5])
VALUES = {"gaussian": {"scale": np.sqrt(0.7)}, "logit": {}, "poisson": {}, "ordinal": {"cuts": CUTS}}
POTENTIALS = {
    "gaussian": lambda y: potentials.Gaussian(y, np.sqrt(0.7)),
    "logit": lambda y: potentials.Logit(y),
    "poisson": lambda y: potentials.Poisson(y),
    "ordinal": lambda y: potentials.Ordinal(y, CUTS, link="logit"),
}
LATENTS = {
    "gaussian": potentials.Gaussian(0.0, 1.0),
    "laplace": potentials.Laplace(0.0, np.sqrt(0.5)),
    "student-t": potentials.StudentT(5.0, 0.0, np.sqrt(0.6)),
}


def random_problem(seed=0, n=40, k=2, missing=0.2, engine="gkl", latents="gaussian", penalty=0.3):
    """Two columns of each kind."""
    rng = np.random.default_rng(seed)
    families = tuple(np.repeat(list(VALUES), 2))
    eta = rng.standard_normal((n, k)) @ rng.standard_normal((k, 8))
    rows = np.column_stack(
        [
            eta[:, :2] + 0.7 * rng.standard_normal((n, 2)),
            rng.random((n, 2)) < 1.0 / (1.0 + np.exp(-eta[:, 2:4])),
            rng.poisson(np.exp(0.5 * eta[:, 4:6])),
            np.digitize(eta[:, 6:] + rng.logistic(size=(n, 2)), CUTS),
        ]
    ).astype(float)
    rows[rng.random(rows.shape) < missing] = np.nan
    levels = np.array([3 if family == "ordinal" else 0 for family in families])
    row_engine = make_engine(engine, LATENTS[latents])
    return MixedProblem(rows, families, levels, row_engine, latents == "gaussian", penalty, 1e-3)


def some_sites(problem, k=2, seed=1):
    rng = np.random.default_rng(seed)
    c = problem.rows.shape[1]
    ordered = np.array([family == "ordinal" for family in problem.families])
    parameters = tuple(VALUES[family] for family in problem.families)
    return ColumnSites(
        problem.families, rng.standard_normal((c, k)), 0.3 * rng.standard_normal(c) * ~ordered, parameters
    )


def test_latents_have_unit_variance():
    grid = np.linspace(-400.0, 400.0, 400_001)
    for density in LATENTS.values():
        p = np.exp(density.log_density(grid[:, None])[:, 0])
        assert np.trapezoid(p, grid) == pytest.approx(1.0, abs=1e-6)
        assert np.trapezoid(p * grid**2, grid) == pytest.approx(1.0, abs=1e-3)


def test_cells_are_those_observed_and_can_be_restricted_to_rows():
    problem = random_problem(n=9)
    sites = some_sites(problem)
    cells = gather(problem.rows, sites)
    assert sum(len(part.row) for part in cells) == np.isfinite(problem.rows).sum()
    for part in cells:
        x = np.linspace(-1.0, 1.0, len(part.row))
        for i, (row, column) in enumerate(zip(part.row, part.column, strict=True)):
            alone = POTENTIALS[problem.families[column]](problem.rows[row, column])
            assert part.potential.log_density(x)[i] == pytest.approx(float(alone.log_density(x[i])), abs=1e-12)
    some = np.array([1, 4, 8])
    again = gather(problem.rows[some], sites)
    for kept, fresh in zip(restrict(cells, some, 9), again, strict=True):
        np.testing.assert_array_equal(kept.row, fresh.row)
        np.testing.assert_array_equal(kept.column, fresh.column)
        x = np.linspace(-1.0, 1.0, len(kept.row))
        np.testing.assert_array_equal(kept.potential.log_density(x), fresh.potential.log_density(x))


@pytest.mark.parametrize(("name", "atol"), [("gkl", 2e-6), ("laplace", 1e-8), ("ep", 2e-6)])
def test_rows_agree_with_the_engines(name, atol):
    problem = random_problem(n=4, missing=0.0)
    sites = some_sites(problem)
    means, covs = np.zeros((4, 2)), np.tile(np.eye(2), (4, 1, 1))
    values = make_engine(name, LATENTS["gaussian"]).infer(problem.rows, sites, means, covs, 100, 1e-12)
    for i, row in enumerate(problem.rows):
        factors = [GaussianFactor(dim=2)]
        for name_of, family in POTENTIALS.items():
            of = np.array([family_name == name_of for family_name in problem.families])
            factors.append(SiteFactor(sites.loading[of], family(row[of]), offset=sites.intercept[of]))
        post = infer(LatentLinearModel(factors), name)
        assert values[i] == pytest.approx(post.log_evidence, abs=atol)
        np.testing.assert_allclose(means[i], post.mean, atol=20 * atol)
        np.testing.assert_allclose(covs[i], post.covariance(), atol=20 * atol)


@pytest.mark.parametrize("column", [0, 2, 4, 6])
def test_column_gradients_match_finite_differences(column):
    problem = random_problem(n=15)
    rng = np.random.default_rng(0)
    y = problem.rows[:, column]
    seen = ~np.isnan(y)
    means, root = rng.standard_normal((15, 2)), 0.5 * rng.standard_normal((15, 2, 2))
    covs = root @ root.transpose(0, 2, 1)
    family = problem.families[column]
    total = ColumnSum(POTENTIALS[family](y[seen]), means[seen], covs[seen], 0.3, family == "ordinal")
    theta = np.array([0.4, -0.6, 0.2])
    free = 2 if family == "ordinal" else 3
    steps = 1e-5 * np.eye(3)[:free]
    numeric = [(total.at(theta + h).value - total.at(theta - h).value) / 2e-5 for h in steps]
    here = total.at(theta)
    np.testing.assert_allclose(here.slope[:free], numeric, rtol=1e-6, atol=1e-7)
    assert np.all(np.linalg.eigvalsh(here.curvature) > 0.0)


@pytest.mark.parametrize(
    "potential",
    [
        potentials.Ordinal([0, 1, 2, 1, 2, 0], [-0.3, 0.1], link="logit"),
        potentials.NegativeBinomial([0, 3, 9, 1, 0, 25], 5.0),
        potentials.Gaussian([0.1, 2.0, -1.0, 0.4, 0.3, 0.2], 3.0),
        potentials.Gamma([0.1, 2.0, 1.0, 0.4, 0.3, 0.2], 9.0),
    ],
)
def test_parameters_of_a_family_end_where_the_expected_log_is_stationary(potential):
    rng = np.random.default_rng(0)
    m, v = rng.standard_normal(6), rng.uniform(0.1, 1.0, 6)
    for _ in range(30):
        potential = potential.replace(**fit_parameters(potential, m, v, 1e-6))
    for name, span in potential.free.items():
        value = np.asarray(potential.value_of(name), dtype=float)
        slope = span.chain(value, potential.expected_parameter_derivative(name, m, v).sum(axis=-1))
        np.testing.assert_allclose(slope, 0.0, atol=2e-3)


def objective(problem, state):
    """The penalised bound at a state: no E-step."""
    means, covs = state.means.copy(), state.covs.copy()
    values = problem.engine.infer(problem.rows, state.sites, means, covs, 0, 0.0)
    return float(values.sum()) - problem.price(state)


@pytest.mark.parametrize("latents", list(LATENTS))
@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_the_bound_rises_at_every_single_update(latents, penalty):
    problem = random_problem(latents=latents, penalty=penalty, k=2)
    state = begin(problem, 3, np.random.default_rng(0))
    value = objective(problem, state)
    for _ in range(6):
        for update in (
            lambda s: problem.expect(s, 1, 0.0)[0],
            lambda s: problem.maximise(s, 1),
            lambda s: expand_latents(s, penalty) if latents == "gaussian" else s,
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
    again = expand_latents(moved, 0.0)
    eta = moved.means.mean(axis=0)
    spread = np.cov(moved.means.T, bias=True) + moved.covs.mean(axis=0)
    gain = 0.5 * len(moved.means) * (np.trace(spread) + eta @ eta - 2 - np.linalg.slogdet(spread)[1])
    assert objective(problem, again) - objective(problem, moved) == pytest.approx(gain, rel=1e-8)


@pytest.mark.parametrize("latents", list(LATENTS))
def test_the_bound_is_below_the_exact_likelihood(latents):
    """One latent: log ∫ p(w) ∏ p(v|w) dw on a grid, for every row."""
    problem = random_problem(n=12, latents=latents)
    sites = some_sites(problem, k=1)
    means, covs = np.zeros((12, 1)), np.ones((12, 1, 1))
    bound = problem.engine.infer(problem.rows, sites, means, covs, 200, 1e-12)
    grid = np.linspace(-12.0, 12.0, 8001)
    for i, row in enumerate(problem.rows):
        log_p = LATENTS[latents].log_density(grid[:, None])[:, 0].copy()
        for c in np.flatnonzero(~np.isnan(row)):
            eta = sites.intercept[c] + sites.loading[c, 0] * grid
            log_p += POTENTIALS[problem.families[c]](row[c]).log_density(eta[:, None])[:, 0]
        exact = logsumexp(log_p) + np.log(grid[1] - grid[0])
        assert bound[i] <= exact + 1e-9
        assert bound[i] >= exact - 0.5


def test_chunks_of_rows_do_not_change_the_numbers(monkeypatch):
    problem = random_problem(n=23)
    sites = some_sites(problem)
    found = []
    for chunk in (5, 1000):
        monkeypatch.setattr("latlin.factor.mixed.rows.CHUNK", chunk)
        means, covs = np.zeros((23, 2)), np.tile(np.eye(2), (23, 1, 1))
        values = problem.engine.infer(problem.rows, sites, means, covs, 100, 1e-10)
        found.append((values, means))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-10)


def test_states_are_copied_not_changed():
    problem = random_problem()
    state = begin(problem, 2, np.random.default_rng(0))
    means, covs, loading = state.means.copy(), state.covs.copy(), state.sites.loading.copy()
    problem.maximise(problem.expect(state, 3, 1e-6)[0])
    for old, new in zip((means, covs, loading), (state.means, state.covs, state.sites.loading), strict=True):
        np.testing.assert_array_equal(old, new)


def table_of_families(n=400):
    rng = np.random.default_rng(0)
    w = rng.standard_normal(n)
    size = np.exp(0.6 * w + 1.0)
    share = 1.0 / (1.0 + np.exp(-w))
    return np.column_stack(
        [
            rng.negative_binomial(2.0, 2.0 / (2.0 + size)),
            size * rng.gamma(4.0, 0.25, n),
            np.clip(rng.beta(8.0 * share, 8.0 * (1.0 - share)), 1e-6, 1.0 - 1e-6),
            w + 0.4 * rng.standard_t(3.0, n),
            np.where(rng.random(n) < 0.25, 0, rng.poisson(size)),
            size * np.exp(0.3 * rng.standard_normal(n)),
        ]
    ), w


def test_columns_of_other_families_find_the_latent_and_their_parameters():
    X, w = table_of_families()
    types = ["negative-binomial", "gamma", "beta", "student-t", "zero-inflated-poisson", "log-normal"]
    model = MixedFactorAnalysis(1, types=types, penalty=0.01, random_state=0).fit(X)
    assert model.converged_
    assert np.diff(model.trace_).min() > -1e-9 * abs(model.lower_bound_)
    assert abs(np.corrcoef(model.transform(X)[:, 0], w)[0, 1]) > 0.93
    values = dict(zip(types, model.sites_.parameters, strict=True))
    assert values["negative-binomial"]["dispersion"] == pytest.approx(0.5, rel=0.4)
    assert values["gamma"]["shape"] == pytest.approx(4.0, rel=0.4)
    assert values["beta"]["precision"] == pytest.approx(8.0, rel=0.4)
    assert values["zero-inflated-poisson"]["probability"] == pytest.approx(0.25, abs=0.08)
    holes = X.copy()
    holes[::4] = np.nan
    holes[::4, 1] = X[::4, 1]
    filled = model.impute(holes)
    assert np.all(np.isfinite(filled))
    draws = model.sample(2000, random_state=0)
    assert np.all((draws[2] > 0.0) & (draws[2] < 1.0))


@pytest.mark.parametrize(
    "family", [name for name in TYPES if name not in ("real", "binary", "ordinal", "categorical", *SUCCESSES)]
)
def test_every_family_is_a_type_of_column(family: str):
    X, w = table_of_families()
    place = 0 if family in ("count", *COUNTS) else 3 if family in NOISES else 2 if family == "beta" else 1
    table = np.column_stack([X[:120, place], X[:120, 3], X[:120, 5]])
    model = MixedFactorAnalysis(1, types=[family, "real", "log-normal"], random_state=0, max_iter=6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(table)
    assert np.diff(model.trace_).min() > -1e-9 * abs(model.lower_bound_)
    assert abs(np.corrcoef(model.transform(table)[:, 0], w[:120])[0, 1]) > 0.7
    holes = table.copy()
    holes[:, 0] = np.nan
    filled = model.impute(holes)[:, 0]
    assert np.all(np.isfinite(filled))
    assert np.corrcoef(filled, w[:120])[0, 1] * np.corrcoef(table[:, 0], w[:120])[0, 1] > 0.0


@pytest.mark.filterwarnings("ignore:column 0 is overdispersed")
def test_overdispersed_counts_prefer_the_negative_binomial():
    X, _ = table_of_families()
    counts = np.column_stack([X[:, 0], X[:, 1], X[:, 3]])
    bounds = {
        family: MixedFactorAnalysis(1, types=[family, "gamma", "student-t"], random_state=0).fit(counts).lower_bound_
        for family in ("count", "negative-binomial")
    }
    assert bounds["negative-binomial"] > bounds["count"] + 30.0


def test_numbers_that_a_family_cannot_produce_are_named():
    X, _ = table_of_families(50)
    for column, value, text in ((0, 0.5, "counts 0, 1, 2"), (1, 0.0, "positive numbers"), (2, 1.0, "shares between 0")):
        broken = X.copy()
        broken[3, column] = value
        types = {0: "negative-binomial", 1: "gamma", 2: "beta"}
        with pytest.raises(ValueError, match=f"column {column} must hold {text}"):
            MixedFactorAnalysis(1, types=types).fit(broken)
    with pytest.raises(ValueError, match="engine 'ep' needs log-concave likelihoods, which 'student-t' has not"):
        MixedFactorAnalysis(1, types={3: "student-t"}, engine="ep").fit(X)


def test_gaussian_rows_are_exact():
    rng = np.random.default_rng(2)
    loading, noise = rng.standard_normal((5, 2)), 0.6
    rows = rng.standard_normal((7, 5))
    parameters = tuple({"scale": np.sqrt(noise)} for _ in range(5))
    sites = ColumnSites(("gaussian",) * 5, loading, np.zeros(5), parameters)
    covariance = loading @ loading.T + noise * np.eye(5)
    exact = -0.5 * np.einsum("nc,nc->n", rows, np.linalg.solve(covariance, rows.T).T)
    exact -= 0.5 * np.linalg.slogdet(2.0 * np.pi * covariance)[1]
    for name in ("gkl", "laplace", "ep"):
        means, covs = np.zeros((7, 2)), np.tile(np.eye(2), (7, 1, 1))
        values = make_engine(name, LATENTS["gaussian"]).infer(rows, sites, means, covs, 50, 1e-12)
        np.testing.assert_allclose(values, exact, rtol=1e-10)
