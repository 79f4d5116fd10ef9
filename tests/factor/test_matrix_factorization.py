"""Matrix factorisation: energies against integrals, the bound against a long Monte Carlo run, rivals, manners."""

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from sklearn.decomposition import NMF

import latlin
from latlin.factor import MatrixFactorization
from latlin.factor.matrix.energies import Cells, Side, energy_of, product_moments
from latlin.factor.matrix.fit import rotate
from latlin.numerics.alerts import MisfitWarning
from latlin.potentials import Gamma, Gaussian, Laplace, Logit, NegativeBinomial, Poisson, Probit, StudentT

SITES = {
    "gaussian": Gaussian(np.array([0.3, -1.0]), 0.7),
    "poisson": Poisson(np.array([0.0, 3.0])),
    "gamma": Gamma(np.array([0.4, 2.0]), 1.5),
    "logit": Logit(np.array([1.0, -1.0])),
    "student-t": StudentT(4.0, np.array([0.3, 2.0]), 0.5),
    "laplace": Laplace(np.array([0.3, 2.0]), 0.5),
    "negative-binomial": NegativeBinomial(np.array([0.0, 3.0]), 0.5),
}
EXACT = ("gaussian", "poisson", "gamma")


def two_cells(seed=0):
    """Two rows and one column with correlated Gaussians in two dimensions each."""
    rng = np.random.default_rng(seed)

    def side(n):
        roots = 0.25 * rng.standard_normal((n, 2, 2))
        return Side(0.7 * rng.standard_normal((n, 2)), roots @ roots.transpose(0, 2, 1) + 0.03 * np.eye(2))

    return Cells(np.array([0, 1]), np.array([0, 0])), side(2), side(1)


def brute_force(potential, rows, columns):
    """⟨ψ(uᵀv)⟩ by 60² nodes for v; given v, z is Gaussian."""
    nodes, weights = hermegauss(60)
    weights = weights / weights.sum()
    grid = np.array(np.meshgrid(nodes, nodes)).reshape(2, -1)
    weight = np.outer(weights, weights).ravel()
    v = columns.mean[0] + (np.linalg.cholesky(columns.cov[0]) @ grid).T
    mean = v @ rows.mean.T
    var = np.stack([np.einsum("gd,de,ge->g", v, cov, v) for cov in rows.cov], axis=1)
    return weight @ potential.expected_log(mean, var).value


@pytest.mark.parametrize("name", SITES)
def test_energies_are_exact_or_below(name):
    cells, rows, columns = two_cells()
    energy = energy_of(SITES[name], True)
    found, truth = energy.values(cells, rows, columns), brute_force(SITES[name], rows, columns)
    assert energy.kind == "lower bound"
    if name in EXACT:
        np.testing.assert_allclose(found, truth, rtol=1e-9)
    else:
        assert np.all(found < truth)
        np.testing.assert_allclose(found, truth, atol=0.35)


def test_sites_without_a_bound_are_called_an_approximation():
    cells, rows, columns = two_cells()
    sites = Probit(np.array([1.0, -1.0]))
    energy = energy_of(sites, True)
    assert energy.kind == "approximation"
    np.testing.assert_allclose(energy.values(cells, rows, columns), brute_force(sites, rows, columns), atol=0.01)
    assert energy_of(SITES["logit"], False).kind == "approximation"


def test_moments_of_the_product():
    cells, rows, columns = two_cells(3)
    rng = np.random.default_rng(0)
    v = rng.multivariate_normal(columns.mean[0], columns.cov[0], 400_000)
    mean, var = product_moments(cells, rows, columns)
    for i in range(2):
        z = np.einsum("nd,nd->n", rng.multivariate_normal(rows.mean[i], rows.cov[i], 400_000), v)
        assert abs(z.mean() - mean[i]) < 5.0 * np.sqrt(var[i] / 400_000)
        assert abs(z.var() / var[i] - 1.0) < 0.02


def test_an_expectation_that_is_infinite_is_minus_infinity():
    cells, rows, columns = two_cells()
    wide = Side(rows.mean, np.tile(2.0 * np.eye(2), (2, 1, 1)))
    both = Side(columns.mean, 2.0 * np.eye(2)[None])
    assert np.all(energy_of(SITES["poisson"], True).values(cells, wide, both) == -np.inf)


@pytest.mark.parametrize("name", SITES)
@pytest.mark.parametrize("bound", [True, False])
def test_pulls_are_the_slopes(name, bound):
    cells, rows, columns = two_cells()
    energy = energy_of(SITES[name], bound)
    pull = energy.pull(cells, rows, columns)
    step = 1e-5
    for d in range(2):
        move = step * np.eye(2)[d]
        up, down = (energy.values(cells, rows._replace(mean=rows.mean + s * move), columns) for s in (1, -1))
        np.testing.assert_allclose(pull.slope[:, d], (up - down) / (2 * step), rtol=1e-5, atol=1e-6)
        for e in range(d + 1):
            bend = step * (np.outer(np.eye(2)[d], np.eye(2)[e]) + np.outer(np.eye(2)[e], np.eye(2)[d])) / 2
            up, down = (energy.values(cells, rows._replace(cov=rows.cov + s * bend), columns) for s in (1, -1))
            np.testing.assert_allclose(-0.5 * pull.precision[:, d, e], (up - down) / (2 * step), rtol=1e-4, atol=1e-6)


def test_rotation_leaves_products_and_balances():
    rng = np.random.default_rng(1)
    rows, columns = (Side(rng.standard_normal((n, 4)), np.tile(0.1 * np.eye(4) + 0.02, (n, 1, 1))) for n in (6, 5))
    cells = Cells(np.repeat(np.arange(6), 5), np.tile(np.arange(5), 6))
    turned = rotate(rows, columns, 2)
    np.testing.assert_allclose(product_moments(cells, *turned), product_moments(cells, rows, columns), rtol=1e-9)
    average = turned[0].moments.reshape(6, 4, 4).mean(axis=0)[:2, :2]
    np.testing.assert_allclose(average, np.eye(2), atol=1e-12)
    other = turned[1].moments.reshape(5, 4, 4).mean(axis=0)[:2, :2]
    assert abs(other[0, 1]) < 1e-12
    assert other[0, 0] > other[1, 1]


@pytest.mark.filterwarnings("ignore::latlin.ConvergenceWarning")
@pytest.mark.parametrize("family", ["gaussian", "poisson", "logit"])
def test_the_bound_is_below_the_evidence(family):
    # log p(X) of three rows and two columns by ten groups of draws of the prior that the fit learnt
    X = {"gaussian": [[1.0, 2.0], [-1.0, -1.5], [0.5, 0.4]], "poisson": [[1, 3], [0, 0], [2, 4]]}.get(
        family, [[1, 1], [0, 0], [1, 0]]
    )
    model = MatrixFactorization(1, family=family, max_iter=30).fit(np.array(X, dtype=float))
    state, values = model._state, model._encode(np.array(X, dtype=float))
    rng = np.random.default_rng(0)
    sites = model._family.potential(values.ravel(), model.likelihood_)
    logs = []
    for _ in range(10):
        n = 40_000
        u, b = (np.sqrt(v) * rng.standard_normal((n, 3)) for v in state.row_prior.variance)
        v, c = (
            m + np.sqrt(s) * rng.standard_normal((n, 2))
            for m, s in zip(state.column_prior.mean, state.column_prior.variance, strict=True)
        )
        z = u[:, :, None] * v[:, None, :] + b[:, :, None] + c[:, None, :]
        logs.append(np.logaddexp.reduce(sites.log_density(z.reshape(n, -1)).sum(axis=1)) - np.log(n))
    evidence = np.mean(logs) - values.size * np.log(model.scale_)
    error = np.std(logs) / np.sqrt(10)
    assert error < 0.1
    assert model.lower_bound_ < evidence + 3.0 * error
    assert model.lower_bound_ > evidence - 4.0


def count_table(seed=0, n=60, d=20):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 2)) @ rng.standard_normal((2, d))
    full = rng.poisson(np.exp(z)).astype(float)
    gap = rng.random(full.shape) < 0.2
    return full, np.where(gap, np.nan, full), gap


@pytest.fixture(scope="module")
def counts():
    full, X, gap = count_table()
    return full, X, gap, MatrixFactorization(4, family="poisson").fit(X)


def test_the_trace_rises_and_latents_that_are_not_needed_fade(counts):
    _, X, _, model = counts
    assert np.all(np.diff(model.trace_) > -1e-8 * np.abs(model.trace_[1:]))
    assert model.trace_[-1] == pytest.approx(model.lower_bound_)
    assert model.relevances_[1] > 0.3
    assert model.relevances_[2] < 0.01
    with pytest.warns(MisfitWarning, match="overdispersed"):
        single = MatrixFactorization(1, family="poisson").fit(X)
    assert model.lower_bound_ > single.lower_bound_ + 100.0


def test_hidden_counts_are_predicted_better_than_by_rivals(counts):
    full, X, gap, model = counts
    rows, columns = np.nonzero(gap)
    poisson = model.log_density_of_cells(rows, columns, full[gap]).mean()
    gaussian = MatrixFactorization(4).fit(X).log_density_of_cells(rows, columns, full[gap]).mean()
    filled = np.where(gap, np.nanmean(X, axis=0), X)
    for _ in range(10):
        nmf = NMF(2, init="nndsvda", beta_loss="kullback-leibler", solver="mu", max_iter=500, tol=1e-3)
        filled = np.where(gap, nmf.fit_transform(filled) @ nmf.components_, X)
    by_nmf = Poisson(full[gap]).log_density(np.log(np.maximum(filled[gap], 1e-3))).mean()
    assert poisson > max(gaussian, by_nmf) + 0.1


def test_intervals_cover(counts):
    full, _, gap, model = counts
    rows, columns = np.nonzero(gap)
    ends = model.predict_cell_interval(rows, columns, 0.9)
    assert 0.88 <= np.mean((ends[:, 0] <= full[gap]) & (full[gap] <= ends[:, 1])) <= 0.99


def test_rows_placed_anew_are_those_of_the_fit(counts):
    full, X, gap, model = counts
    np.testing.assert_allclose(model.transform(X), model.row_factors_, atol=0.03)
    filled, std = model.impute(X, return_std=True)
    np.testing.assert_array_equal(filled[~gap], full[~gap])
    assert np.all((std > 0.0) == gap)
    np.testing.assert_allclose(filled[gap], model.predict_cells(*np.nonzero(gap)), rtol=0.1)
    assert model.score_samples(X).shape == (60,)


def test_units_of_real_tables_change_nothing():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((30, 1)) @ rng.standard_normal((1, 8)) + 0.3 * rng.standard_normal((30, 8))
    X[rng.random(X.shape) < 0.1] = np.nan
    for family in ("gaussian", "laplace"):
        one, other = (MatrixFactorization(2, family=family, tol=1e-3).fit(table) for table in (X, 1000.0 * X + 5e4))
        cells = int((~np.isnan(X)).sum())
        assert other.lower_bound_ == pytest.approx(one.lower_bound_ - cells * np.log(1000.0), abs=1e-3)
        np.testing.assert_allclose(other.impute(1000.0 * X + 5e4), 1000.0 * one.impute(X) + 5e4, rtol=1e-5)
        assert other.parameters_["scale"] == pytest.approx(1000.0 * one.parameters_["scale"], rel=1e-5)


def test_ratings():
    rng = np.random.default_rng(3)
    latent = rng.standard_normal((50, 1)) @ (2.0 * rng.standard_normal((1, 8))) + rng.logistic(size=(50, 8))
    X = np.array([1.0, 2.0, 4.0, 5.0])[np.digitize(latent, [-2.0, 0.0, 2.0])]
    X[rng.random(X.shape) < 0.1] = np.nan
    model = MatrixFactorization(1, family="ordinal").fit(X)
    assert model.evidence_kind_ == "approximation"
    filled = model.impute(X)
    assert np.all((filled >= 1.0) & (filled <= 5.0))
    assert set(model.predict_cell_interval([0, 1], [0, 1]).ravel()) <= {1.0, 2.0, 4.0, 5.0}
    with pytest.raises(ValueError, match="must hold the ratings"):
        model.transform(np.full((1, 8), 3.0))


def test_a_file_holds_everything(counts, tmp_path):
    _, X, _, model = counts
    model.save(tmp_path / "table.latlin")
    again = latlin.load(tmp_path / "table.latlin")
    np.testing.assert_array_equal(again.impute(X), model.impute(X))
    np.testing.assert_array_equal(again.relevances_, model.relevances_)
    assert again.lower_bound_ == model.lower_bound_


def test_bad_input_is_named(counts):
    model = counts[-1]
    with pytest.raises(ValueError, match="family must be one of"):
        MatrixFactorization(family="binomial").fit(np.ones((3, 3)))
    with pytest.raises(ValueError, match="at least one observed cell"):
        MatrixFactorization().fit(np.full((3, 3), np.nan))
    with pytest.raises(ValueError, match="rows must be whole numbers from 0 to 59"):
        model.predict_cells([60], [0])
    with pytest.raises(ValueError, match="coverage"):
        model.predict_cell_interval([0], [0], 1.5)
