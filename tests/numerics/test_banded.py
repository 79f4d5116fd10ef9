"""Factors within a band and a border: the numbers of the general route and of dense algebra."""

import numpy as np
import pytest
from scipy import sparse

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.inference.forms import sparse as forms
from latlin.inference.forms.sparse_rows import times_band
from latlin.numerics import banded
from latlin.numerics.sparse_cholesky import analyse


def banded_matrix(n, width, border, ring=False, shuffled=False, seed=0):
    """A diagonally dominant matrix: a band, dense last columns, and perhaps a corner that closes the ring."""
    rng, inner = np.random.default_rng(seed), n - border
    matrix = np.zeros((n, n))
    for below in range(1, min(width, inner - 1) + 1):
        matrix[np.arange(below, inner), np.arange(inner - below)] = rng.standard_normal(inner - below)
    matrix[inner:] = rng.standard_normal((border, n))
    matrix[inner - 1, 0] += ring
    matrix = np.tril(matrix, -1)
    matrix += matrix.T + np.diag(np.abs(matrix + matrix.T).sum(axis=0) + 1.0)
    order = rng.permutation(n) if shuffled else np.arange(n)
    return sparse.csr_array(matrix[np.ix_(order, order)])


CASES = [
    (60, 1, 0),
    (200, 0, 3),
    (200, 2, 2),
    (300, 11, 1),
    (6, 3, 1),
    (90, 1, 0, True),
    (200, 2, 1, True, True),
    (300, 3, 2, False, True),
    (1, 0, 0),
]


def generally(matrix, monkeypatch):
    """The factor by supernodes."""
    with monkeypatch.context() as patch:
        patch.setattr(banded, "TALLEST", 0)
        analysis = analyse(matrix)
    assert analysis.band is None
    return analysis.factorise(analysis.values(matrix))


@pytest.mark.parametrize("case", CASES)
def test_a_band_gives_the_numbers_of_the_general_route(case, monkeypatch):
    matrix, rng = banded_matrix(*case), np.random.default_rng(1)
    analysis = analyse(matrix)
    assert analysis.band is not None
    ours, other = analysis.factorise(analysis.values(matrix)), generally(matrix, monkeypatch)
    i, j = matrix.nonzero()
    vectors = rng.standard_normal((matrix.shape[0], 3))
    np.testing.assert_allclose(ours.log_det, other.log_det, rtol=1e-10)
    np.testing.assert_allclose(ours.solve(vectors), other.solve(vectors), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours.solve(vectors[:, 0]), other.solve(vectors)[:, 0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours.inverse_entries(i, j), other.inverse_entries(i, j), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours.inverse_diagonal, other.inverse_diagonal, rtol=1e-10)
    np.testing.assert_allclose(ours.squares(vectors.T), other.squares(vectors.T), rtol=1e-10)
    whitened = ours.whiten(vectors)
    np.testing.assert_allclose(np.sum(whitened**2, axis=0), np.sum(other.whiten(vectors) ** 2, axis=0), rtol=1e-10)
    root = ours.unwhiten(np.eye(matrix.shape[0]))
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(matrix.toarray()), rtol=1e-9, atol=1e-12)


def test_a_matrix_that_is_not_positive_definite_has_no_factor_in_a_band_either():
    matrix = banded_matrix(200, 2, 1).toarray()
    matrix[20, 20] = 0.0
    analysis = analyse(sparse.csr_array(matrix))
    factor, place = analysis.attempt(analysis.values(sparse.csr_array(matrix)))
    assert analysis.band is not None
    assert factor is None
    assert place == 20


@pytest.mark.parametrize("width", [0, 1, 3])
def test_products_of_a_band(width):
    matrix = banded_matrix(40, width, 0)
    analysis, v = analyse(matrix), np.random.default_rng(1).standard_normal(40)
    np.testing.assert_allclose(times_band(analysis, analysis.values(matrix), v), matrix @ v, rtol=1e-12)
    for other in (banded_matrix(40, 1, 2), banded_matrix(40, 1, 0, True, True)):
        assert times_band(analyse(other), analyse(other).values(other), v) is None


def test_patterns_that_would_be_padded_or_are_wide_are_no_bands():
    side = 12
    line = sparse.diags_array([np.ones(side - 1)] * 2, offsets=[-1, 1])
    lattice = sparse.kron(line, sparse.eye_array(side)) + sparse.kron(sparse.eye_array(side), line)
    assert analyse(sparse.csr_array(lattice + 5.0 * sparse.eye_array(side**2))).band is None
    assert analyse(sparse.csr_array(np.eye(60) + 1.0)).band is None


def test_a_band_is_recognised_from_its_columns_alone():
    analysis = analyse(banded_matrix(200, 2, 2))
    assert banded.band_of(analysis.first, analysis.begin, analysis.rows) == analysis.band == (198, 2, 2)
    moved = analysis.rows.copy()
    moved[4] += 1
    assert banded.band_of(analysis.first, analysis.begin, moved) is None


@pytest.mark.parametrize("engine", ["laplace", "gkl", "map", "ep"])
@pytest.mark.parametrize("ring", [False, True])
def test_fits_of_walks_do_not_depend_on_the_route(engine, ring, monkeypatch):
    n, rng = 400, np.random.default_rng(0)
    steps = sparse.diags_array([-np.ones(n - 1), np.ones(n - 1)], offsets=[0, 1], shape=(n - 1, n)).tolil()
    walk = sparse.csr_array(steps.T @ steps)
    if ring:
        closing = sparse.csr_array(([1.0, 1.0, -1.0, -1.0], ([0, n - 1, 0, n - 1], [0, n - 1, n - 1, 0])), shape=(n, n))
        walk = sparse.csr_array(walk + closing)
    y = rng.poisson(np.exp(np.sin(np.arange(n) / 40.0)))
    rows = sparse.hstack([sparse.eye_array(n), np.ones((n, 1))], format="csr")

    def fit():
        prior = GaussianFactor(precision=50.0 * walk, rank=n - 1, H=slice(0, n), dim=n + 1)
        level = GaussianFactor(precision=0.1, H=slice(n, n + 1), dim=n + 1)
        pinned = GaussianFactor(precision=1e-3, H=slice(0, 1), dim=n + 1)
        model = LatentLinearModel([prior, level, pinned, SiteFactor(rows, potentials.Poisson(y))])
        return forms.sparse_form(model).analysis.band, infer(model, engine)

    band, ours = fit()
    assert (band.width, band.border) == (2 if ring else 1, 1)
    with monkeypatch.context() as patch:
        patch.setattr(banded, "TALLEST", 0)
        patch.setattr(forms, "_KNOWN", {})  # analyses of other posteriors
        none, other = fit()
    assert none is None
    np.testing.assert_allclose(ours.mean, other.mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours.variance, other.variance, rtol=1e-8)
    if engine != "map":
        np.testing.assert_allclose(ours.log_evidence, other.log_evidence, rtol=1e-10)


def test_a_walk_from_many_counts_to_none_needs_few_steps():
    # without longer steps Newton's method goes down by one per step where there are no counts
    n = 2000
    y = np.r_[np.full(n // 2, 400.0), np.zeros(n // 2)]
    steps = sparse.diags_array([-np.ones(n - 1), np.ones(n - 1)], offsets=[0, 1], shape=(n - 1, n))
    walk = GaussianFactor(precision=4.0 * sparse.csr_array(steps.T @ steps), rank=n - 1)
    found = infer(LatentLinearModel([walk, SiteFactor(None, potentials.Poisson(y))]), "laplace")
    assert found.converged
    assert found.n_iter <= 9


def test_where_every_site_says_little_the_first_step_of_gaussian_kl_is_a_whole_one(monkeypatch):
    n, rng = 2000, np.random.default_rng(3)
    y = rng.poisson(np.exp(np.sin(np.arange(n) / 100.0)))
    steps = sparse.diags_array([-np.ones(n - 1), np.ones(n - 1)], offsets=[0, 1], shape=(n - 1, n))
    walk = GaussianFactor(precision=400.0 * sparse.csr_array(steps.T @ steps), rank=n - 1)
    model = LatentLinearModel([walk, SiteFactor(None, potentials.Poisson(y))])
    found = infer(model, "gkl")
    monkeypatch.setattr("latlin.inference.gaussian_kl.sites.SLIGHT", -1.0)
    half = infer(model, "gkl")
    assert found.converged
    assert found.n_iter < half.n_iter
    np.testing.assert_allclose(found.log_evidence, half.log_evidence, rtol=1e-8)
    np.testing.assert_allclose(found.mean, half.mean, atol=1e-4)
