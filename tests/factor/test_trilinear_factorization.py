"""Trilinear factorisation: energies against integrals, the bound against draws of the prior, recovery, manners."""

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss

import latlin
from latlin.factor import MatrixFactorization, TrilinearFactorization
from latlin.factor.matrix.energies import Cells, MomentEnergy, Side, product_moments
from latlin.factor.matrix.trilinear import balance, product_of_others
from latlin.potentials import Gaussian, Laplace, Logit


def three_modes(seed=0):
    """One cell: three Gaussians in two dimensions."""
    rng = np.random.default_rng(seed)

    def side():
        root = 0.3 * rng.standard_normal((1, 2, 2))
        return Side(0.8 * rng.standard_normal((1, 2)), root @ root.transpose(0, 2, 1) + 0.03 * np.eye(2))

    return [side() for _ in range(3)]


def brute_force(potential, sides):
    """⟨ψ(Σ x_d y_d s_d)⟩ by 20⁴ nodes for y and s; given them, z is Gaussian."""
    nodes, weights = hermegauss(20)
    weights = weights / weights.sum()
    grid = np.array(np.meshgrid(nodes, nodes)).reshape(2, -1)
    weight = np.outer(weights, weights).ravel()
    points = [side.mean[0] + (np.linalg.cholesky(side.cov[0]) @ grid).T for side in sides[1:]]
    w = (points[0][:, None, :] * points[1][None, :, :]).reshape(-1, 2)
    mean, var = w @ sides[0].mean[0], np.einsum("gd,de,ge->g", w, sides[0].cov[0], w)
    return np.outer(weight, weight).ravel() @ potential.expected_log(mean[:, None], var[:, None]).value.ravel()


AT = (np.array([0]),) * 3


@pytest.mark.parametrize("potential", [Gaussian(0.3, 0.7), Logit(np.array([1])), Laplace(0.4, 0.5)])
def test_energies_are_exact_or_below_from_every_mode(potential):
    sides = three_modes()
    truth = brute_force(potential, sides)
    energy, cells = MomentEnergy(potential, True), Cells(*AT[:2])
    found = [float(energy.values(cells, sides[m], product_of_others(AT, sides, m))[0]) for m in range(3)]
    np.testing.assert_allclose(found, found[0], rtol=1e-12)
    if isinstance(potential, Gaussian):
        np.testing.assert_allclose(found[0], truth, rtol=1e-9)
    else:
        assert truth - 0.4 < found[0] < truth


def test_balance_leaves_the_products():
    sides = three_modes(1)
    wide = [Side(np.column_stack([s.mean, np.ones((1, 3))]), np.pad(s.cov, ((0, 0), (0, 3), (0, 3)))) for s in sides]
    turned = balance(wide, 2)
    cells = Cells(*AT[:2])
    np.testing.assert_allclose(
        product_moments(cells, turned[0], product_of_others(AT, turned, 0)),
        product_moments(cells, wide[0], product_of_others(AT, wide, 0)),
        rtol=1e-12,
    )
    for side in turned[:2]:
        np.testing.assert_allclose(side.mean[0, :2] ** 2 + np.diag(side.cov[0])[:2], 1.0)


@pytest.mark.filterwarnings("ignore::latlin.ConvergenceWarning")
@pytest.mark.parametrize("family", ["gaussian", "logit"])
def test_the_bound_is_below_the_evidence(family):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((2, 2, 2)) if family == "gaussian" else rng.integers(0, 2, (2, 2, 2)).astype(float)
    model = TrilinearFactorization(1, family=family, max_iter=20, n_init=1).fit(X)
    sites = model._family.potential(model._encode(X).ravel(), model.likelihood_)
    third, mean = model.third_variance_, model.third_mean_[:, 3].mean()
    logs = []
    for _ in range(10):
        n = 40_000
        u, v, t = (rng.standard_normal((n, 2)) for _ in range(3))
        a, b, c = (np.sqrt(s) * rng.standard_normal((n, 2)) for s in (*model.intercept_variances_[:2], third[1]))
        z = np.einsum("ni,nj,nk->nijk", u, v, np.sqrt(third[0]) * t)
        z = z + a[:, :, None, None] + b[:, None, :, None] + (mean + c)[:, None, None, :]
        logs.append(np.logaddexp.reduce(sites.log_density(z.reshape(n, -1)).sum(axis=1)) - np.log(n))
    evidence, error = np.mean(logs) - X.size * np.log(model.scale_), np.std(logs) / np.sqrt(10)
    assert error < 0.1
    assert evidence - 5.0 < model.lower_bound_ < evidence + 3.0 * error


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((n, 2)) for n in (16, 12, 8)]
    z = np.einsum("ir,jr,kr->ijk", *factors) + rng.standard_normal(12)[:, None]
    full = z + 0.3 * rng.standard_normal(z.shape)
    gap = rng.random(full.shape) < 0.2
    X = np.where(gap, np.nan, full)
    return z, X, gap, factors, TrilinearFactorization(4, random_state=0).fit(X)


def test_the_trace_rises_and_latents_that_are_not_needed_fade(table):
    _, _, _, _, model = table
    assert np.all(np.diff(model.trace_) > -1e-8 * np.abs(model.trace_[1:]))
    assert model.trace_[-1] == pytest.approx(model.lower_bound_)
    assert model.evidence_kind_ == "lower bound"
    assert model.relevances_[1] > 100.0 * model.relevances_[2]
    assert model.parameters_["scale"] == pytest.approx(0.3, rel=0.1)


def test_factors_and_hidden_cells_are_recovered(table):
    z, X, gap, factors, model = table
    for found, true in zip(model.factors_, factors, strict=True):
        match = np.abs(np.corrcoef(found[:, :2].T, true.T)[:2, 2:])
        assert np.all(match.max(axis=1) > 0.97)
    filled, std = model.impute(X, return_std=True)
    error = np.sqrt(np.mean((filled[gap] - z[gap]) ** 2))
    flat = MatrixFactorization(4).fit(X.reshape(16, -1)).impute(X.reshape(16, -1)).reshape(X.shape)
    assert error < 0.15 < np.sqrt(np.mean((flat[gap] - z[gap]) ** 2))
    assert np.all((std > 0.0) == gap)
    at = np.nonzero(gap)
    ends = model.predict_cell_interval(*at, 0.9)
    assert np.mean((ends[:, 0] <= z[gap]) & (z[gap] <= ends[:, 1])) > 0.9
    assert model.log_density_of_cells(*at, z[gap]).mean() > 0.0


def test_a_file_holds_everything(table, tmp_path):
    _, X, _, _, model = table
    model.save(tmp_path / "table.latlin")
    np.testing.assert_array_equal(latlin.load(tmp_path / "table.latlin").impute(X), model.impute(X))


@pytest.mark.parametrize(("family", "kind"), [("logit", "lower bound"), ("poisson", "approximation")])
def test_labels_and_counts(family, kind):
    rng = np.random.default_rng(1)
    z = np.einsum("i,j,k->ijk", *(rng.choice([-1.5, 1.5], n) for n in (10, 8, 6)))
    X = (rng.random(z.shape) < 1.0 / (1.0 + np.exp(-z))) if family == "logit" else rng.poisson(np.exp(0.5 * z))
    X = X.astype(float)
    gap = rng.random(X.shape) < 0.2
    model = TrilinearFactorization(1, family=family, tol=1e-4, random_state=0).fit(np.where(gap, np.nan, X))
    assert model.evidence_kind_ == kind
    assert np.corrcoef(model.predict_cells(*np.nonzero(gap)), z[gap])[0, 1] > 0.7


@pytest.mark.parametrize(
    ("X", "text"),
    [
        (np.zeros((3, 2)), "three indices"),
        (np.full((2, 2, 2), np.inf), "infinite"),
        (np.full((2, 2, 2), np.nan), "at least one observed cell"),
        (np.full((2, 2, 2), 1e150), "at most 1e"),
        ([[["a"]]], "must hold numbers"),
    ],
)
def test_bad_tables(X, text):
    with pytest.raises(ValueError, match=text):
        TrilinearFactorization(1).fit(X)


def test_bad_questions(table):
    model = table[-1]
    with pytest.raises(ValueError, match="third must be whole numbers from 0 to 7"):
        model.predict_cells([0], [0], [8])
    with pytest.raises(ValueError, match="must have the shape"):
        model.impute(np.zeros((2, 2, 2)))
