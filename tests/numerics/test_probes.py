"""Log determinants, draws and solves by products against dense algebra."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from latlin.densities.sparse_precision import ProbedPrecisionCovariance
from latlin.numerics.probes import SparseSum, inverse_roots, lanczos_columns, probe
from latlin.numerics.stored import Decoder, Encoder


def _crossed(n=400, levels=40, seed=0):
    """Λ, H and weights of two crossed factors with a dense border."""
    rng = np.random.default_rng(seed)
    rows = np.arange(n)
    parts = [sparse.csr_array(np.column_stack([np.ones(n), rng.standard_normal(n)]))]
    for _ in range(2):
        parts.append(sparse.csr_array((np.ones(n), (rows, rng.integers(levels, size=n))), shape=(n, levels)))
    H = sparse.csr_array(sparse.hstack(parts, format="csr"))
    prior = sparse.csr_array(sparse.diags_array(np.r_[0.01, 0.01, np.full(2 * levels, 2.0)]))
    return prior, H, rng.uniform(0.05, 0.25, n)


@pytest.fixture(params=["entries", "products"])
def matrices(request):
    """A, however it is held, and dense."""
    prior, H, gamma = _crossed()
    total = sparse.csr_array(prior + H.T @ sparse.diags_array(gamma) @ H)
    held = SparseSum(total) if request.param == "entries" else SparseSum(prior, H, gamma)
    return held, total.toarray()


def test_products_diagonals_and_solves(matrices):
    held, dense = matrices
    v = np.random.default_rng(1).standard_normal((len(dense), 3))
    np.testing.assert_allclose(held.times(v), dense @ v, atol=1e-10)
    np.testing.assert_allclose(held.times(v[:, 0]), dense @ v[:, 0], atol=1e-10)
    np.testing.assert_allclose(held.diagonal, np.diagonal(dense), rtol=1e-12)
    np.testing.assert_allclose(held.solve(v, 1e-10), np.linalg.solve(dense, v), atol=1e-8)


def test_log_determinants_are_within_their_standard_errors(matrices):
    """Over forty sets of probes the errors are as large as they are said to be, and have no bias beyond that."""
    held, dense = matrices
    true = np.linalg.slogdet(dense)[1]
    found = [probe(held, 16, seed) for seed in range(40)]
    z = np.array([(one.log_det - true) / one.error for one in found])
    assert abs(z.mean()) < 0.7
    assert 0.6 < z.std() < 1.6


def test_control_variates_shrink_the_error():
    prior, H, gamma = _crossed()
    total = sparse.csr_array(prior + H.T @ sparse.diags_array(gamma) @ H)
    with_squares, without = probe(SparseSum(total), 32).error, probe(SparseSum(prior, H, gamma), 32).error
    assert with_squares < 0.8 * without


def test_draws_have_the_inverse_as_their_covariance(matrices):
    held, dense = matrices
    noise = np.eye(len(dense))
    roots = inverse_roots(held, noise)
    # the images of unit vectors are the columns of a root R with RRᵀ = A⁻¹
    np.testing.assert_allclose(roots @ roots.T, np.linalg.inv(dense), atol=1e-6)
    found = probe(held, 5)
    np.testing.assert_allclose(dense @ found.draws, found.images, atol=1e-8)


def test_equal_seeds_have_equal_probes(matrices):
    held, _ = matrices
    one, other = probe(held, 4, 7), probe(held, 4, 7)
    np.testing.assert_array_equal(one.draws, other.draws)
    assert one.log_det == other.log_det


def test_a_matrix_that_is_not_definite_is_refused():
    bad = SparseSum(sparse.csr_array(np.array([[1.0, 2.0], [2.0, 1.0]])))
    with pytest.raises(ValueError, match="not positive definite"):
        probe(bad, 4)


def test_columns_of_lanczos_are_those_of_single_vectors():
    rng = np.random.default_rng(2)
    root = rng.standard_normal((30, 30))
    a = root @ root.T + 5.0 * np.eye(30)
    start = rng.standard_normal((30, 4))
    start /= np.linalg.norm(start, axis=0)
    basis, diagonal, off = lanczos_columns(lambda v: a @ v, start, 8, 0.0)
    for k in range(4):
        q = np.stack([vector[:, k] for vector in basis], axis=1)
        np.testing.assert_allclose(q.T @ q, np.eye(8), atol=1e-7)
        t = np.diag(diagonal[:, k]) + np.diag(off[:, k], 1) + np.diag(off[:, k], -1)
        np.testing.assert_allclose(q.T @ a @ q, t, atol=1e-6)


def _stored(held):
    """What a file says of a matrix: JSON, and arrays by their names."""
    encoder = Encoder()
    return encoder.encode(held, "matrix"), encoder.arrays


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("matrix.base.1", lambda indices: indices + 7),
        ("matrix.base.1", lambda indices: np.full_like(indices, -(2**31))),
        ("matrix.base.2", lambda indptr: indptr[::-1].copy()),
        ("matrix.base.2", lambda indptr: 2 * indptr),
        ("matrix.base.0", lambda data: data[:-1]),
        ("matrix.rows.1", lambda indices: indices + 3),
        ("matrix.weights", lambda weights: weights[:-1]),
    ],
)
def test_places_from_a_file_are_looked_at_before_they_are_followed(name, change):
    """Compiled loops go where stored indices lead: one that is out of place ended the process."""
    rows = sparse.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]))
    base = sparse.csr_array(np.array([[2.0, 0.5, 0.0], [0.5, 2.0, 0.0], [0.0, 0.0, 1.0]]))
    held = SparseSum(base, rows, np.array([0.3, 0.7]))
    header, arrays = _stored(held)
    v = np.arange(3.0)
    np.testing.assert_array_equal(Decoder(arrays).decode(header).times(v), held.times(v))
    with pytest.raises(ValueError):
        Decoder(arrays | {name: change(arrays[name])}).decode(header)


def test_draws_from_a_file_have_the_length_of_the_matrix():
    held = SparseSum(sparse.csr_array(np.diag([2.0, 3.0, 4.0])))
    header, arrays = _stored(ProbedPrecisionCovariance.of(held, 4))
    assert Decoder(arrays).decode(header).dim == 3
    for name in ("matrix.draws", "matrix.images"):
        for wrong in (arrays[name][:2], arrays[name][:, :3].reshape(-1), arrays[name].astype(int)):
            with pytest.raises(ValueError, match=f"{name[7:]} must be an array of shape"):
                Decoder(arrays | {name: wrong}).decode(header)
