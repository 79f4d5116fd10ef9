"""Every structure against its own dense matrix, and every derivative against finite differences."""

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from scipy.stats import multivariate_normal

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import DiagonalWhitening
from latlin.densities.structured.base import (
    DiagonalStructure,
    StructuredCovariance,
    banded_triangle,
    sparse_triangle,
    variances_of,
)
from latlin.densities.structured.loadings import ChevronStructure, LowRankStructure, SubspaceStructure
from latlin.densities.structured.rows import banded_pattern, sparse_pattern
from latlin.densities.structured.stacked_rows import StackedRows, make_projection_rows

DIM = 9
H = np.random.default_rng(1).standard_normal((14, DIM)) * (np.random.default_rng(2).random((14, DIM)) < 0.6)
BASIS = np.linalg.qr(np.random.default_rng(3).standard_normal((DIM, DIM)))[0]
PLACES = sparse.random_array((DIM, DIM), density=0.3, random_state=np.random.default_rng(4))
STRUCTURES = {
    "diagonal": DiagonalStructure(DIM),
    "banded": banded_triangle(DIM, 2),
    "full": banded_triangle(DIM, DIM + 3),
    "sparse": sparse_triangle(DIM, PLACES),
    "chevron": ChevronStructure(DIM, np.array([4, 0, 7])),
    "chevron full": ChevronStructure(DIM, np.arange(DIM)[::-1]),
    "low-rank": LowRankStructure(DIM, 2),
    "subspace": SubspaceStructure(BASIS[:, :3], banded_triangle(3, 2)),
    "subspace diagonal": SubspaceStructure(BASIS[:, :4], DiagonalStructure(4)),
    "subspace banded": SubspaceStructure(BASIS[:, :4], banded_triangle(4, 1)),
    "subspace full": SubspaceStructure(BASIS, banded_triangle(DIM, DIM)),
}


def squared(matrix):
    """A LinearOperator that also knows its squares."""
    operator = aslinearoperator(matrix)
    operator.squares = aslinearoperator(matrix**2)
    return operator


ROWS = {
    "dense": make_projection_rows(H, np.ones(DIM)),
    "sparse": make_projection_rows(sparse.csr_array(H), np.ones(DIM)),
    "stacked": StackedRows(
        (make_projection_rows(H[:5], np.ones(DIM)), make_projection_rows(sparse.csr_array(H[5:]), np.ones(DIM)))
    ),
    "operator": make_projection_rows(squared(H), np.ones(DIM)),
    "probed": make_projection_rows(aslinearoperator(H), np.ones(DIM)),
}
EXACT = ("dense", "sparse", "stacked", "operator")


def takes(structure, rows):
    return not (rows in ("operator", "probed") and hasattr(structure, "pattern"))


CASES = [(s, r) for s in STRUCTURES for r in ROWS if takes(STRUCTURES[s], r)]


def parameters(structure, seed=0):
    """A member with positive pivots, nothing at zero that is free."""
    rng = np.random.default_rng(seed)
    theta = structure.spread(0.5 + rng.random(DIM))
    theta += 0.2 * rng.standard_normal(structure.size) * (theta == 0.0)
    return structure.flat(structure.factor(theta))


def dense(structure, theta):
    factor = structure.factor(theta)
    square = factor.T @ factor
    return square.toarray() if sparse.issparse(square) else square


def slope(function, at, direction, step=1e-5):
    """Central difference along a direction."""
    return (function(at + step * direction) - function(at - step * direction)) / (2.0 * step)


@pytest.mark.parametrize("name", STRUCTURES)
def test_flat_vector_and_factor_are_one(name):
    structure = STRUCTURES[name]
    theta = parameters(structure)
    factor = structure.factor(theta)
    again = structure.factor(structure.flat(factor))
    assert np.allclose((again - factor).sum(), 0.0)
    assert np.allclose(dense(structure, structure.flat(factor)), dense(structure, theta), atol=1e-14)


@pytest.mark.parametrize("name", STRUCTURES)
def test_trace_determinant_and_diagonal(name):
    structure = STRUCTURES[name]
    theta = parameters(structure)
    s = dense(structure, theta)
    assert np.isclose(structure.trace(theta), np.trace(s), rtol=1e-12)
    assert np.isclose(structure.log_det(theta), np.linalg.slogdet(s)[1], rtol=1e-10)
    assert np.allclose(structure.variances(theta), np.diagonal(s), rtol=1e-12)


@pytest.mark.parametrize("name", STRUCTURES)
def test_spread_is_diagonal_where_the_family_has_it(name):
    structure = STRUCTURES[name]
    scale = np.linspace(0.5, 2.0, DIM)
    s = dense(structure, structure.spread(scale))
    if not name.startswith("subspace"):
        assert np.allclose(s, np.diag(scale**2), atol=1e-12)
    flat = dense(structure, structure.spread(np.full(DIM, 0.7)))
    assert np.allclose(flat, 0.49 * np.eye(DIM), atol=1e-12)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_projected_variances(name, kind):
    structure = STRUCTURES[name]
    theta = parameters(structure)
    exact = np.einsum("nd,de,ne->n", H, dense(structure, theta), H)
    found = variances_of(structure, theta, ROWS[kind])
    if kind in EXACT:
        assert np.allclose(found, exact, rtol=1e-11, atol=1e-13)
    else:
        # 64 signs: relative standard deviation of each at most √(2/64)
        assert np.all(found >= 0.0)
        assert np.allclose(found, exact, rtol=6 * np.sqrt(2 / 64))


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_gradient_and_hessian_product_of_the_variances(name, kind):
    structure, rng = STRUCTURES[name], np.random.default_rng(5)
    rows = structure.prepare(ROWS[kind])
    theta = parameters(structure)
    direction = 2.0 * parameters(structure, seed=1) - parameters(structure, seed=2)
    weights, bend = rng.standard_normal((2, len(H)))

    def variances(at):
        image = structure.image(at, rows)
        return structure.inner(image, image, rows)

    def gradient(at):
        # of Σ weights v + ½ bend v²
        image = structure.image(at, rows)
        total = weights + bend * structure.inner(image, image, rows)
        return 2.0 * structure.pull([(total, image)], rows)

    value = slope(lambda at: weights @ variances(at) + 0.5 * bend @ variances(at) ** 2, theta, direction)
    assert np.isclose(gradient(theta) @ direction, value, rtol=1e-6, atol=1e-7)
    if name == "low-rank":
        return
    image, moved = structure.image(theta, rows), structure.image(direction, rows)
    v_dot = 2.0 * structure.inner(image, moved, rows)
    v = structure.inner(image, image, rows)
    exact = 2.0 * structure.pull([(bend * v_dot, image), (weights + bend * v, moved)], rows)
    assert np.allclose(exact, slope(gradient, theta, direction), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", STRUCTURES)
def test_determinant_derivatives(name):
    structure, rng = STRUCTURES[name], np.random.default_rng(6)
    theta, direction = parameters(structure), rng.standard_normal(structure.size)
    found = structure.log_det_gradient(theta) @ direction
    assert np.isclose(found, slope(structure.log_det, theta, direction), rtol=1e-6, atol=1e-7)
    if structure.concave:
        bent = -slope(structure.log_det_gradient, theta, direction)
        assert np.allclose(structure.log_det_curvature(theta) * direction, bent, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "kind"), [case for case in CASES if case[1] in EXACT])
def test_energy_is_the_diagonal_of_the_second_derivative(name, kind):
    structure = STRUCTURES[name]
    rows, theta = structure.prepare(ROWS[kind]), parameters(structure)
    weights = np.random.default_rng(7).random(len(H))
    free = structure.pull([(weights, structure.image(np.ones(structure.size), rows))], rows) != 0.0
    units = np.eye(structure.size)
    free &= [np.any(structure.flat(structure.factor(theta + unit)) != theta) for unit in units]
    own = [structure.pull([(weights, structure.image(unit, rows))], rows) @ unit for unit in units]
    if name != "low-rank":
        assert np.allclose(structure.energy(weights, rows)[free], np.array(own)[free], rtol=1e-10)


@pytest.mark.parametrize("name", STRUCTURES)
def test_gaussian_answers_from_the_structure(name):
    structure = STRUCTURES[name]
    whitening = DiagonalWhitening(np.linspace(0.5, 2.0, DIM))
    covariance = StructuredCovariance(whitening, structure, parameters(structure))
    gaussian = Gaussian(np.linspace(-1.0, 1.0, DIM), covariance)
    s = gaussian.covariance()
    points = np.random.default_rng(8).standard_normal((5, DIM))
    assert np.allclose(gaussian.logpdf(points), multivariate_normal(gaussian.mean, s).logpdf(points), rtol=1e-8)
    assert np.allclose(gaussian.variance, np.diagonal(s))
    for rows in (H, sparse.csr_array(H)):
        assert np.allclose(gaussian.project(rows).variance, np.einsum("nd,de,ne->n", H, s, H), rtol=1e-10, atol=1e-12)
    draws = gaussian.sample(40_000, random_state=0) - gaussian.mean
    # the entries of a sample covariance have standard deviation √((s_ij² + s_ii s_jj)/n)
    error = (draws.T @ draws / len(draws) - s) / np.sqrt((s**2 + np.outer(gaussian.variance, gaussian.variance)) / 4e4)
    assert np.abs(error).max() < 5.0


def test_outside_the_family_there_is_no_determinant():
    for name in ("diagonal", "banded", "chevron", "subspace"):
        assert STRUCTURES[name].log_det(-parameters(STRUCTURES[name])) == -np.inf


def test_patterns():
    assert banded_pattern(5, 0).size == 5
    assert banded_pattern(5, 4).size == 15
    lower = sparse_pattern(np.tril(np.ones((4, 4))), 4)
    assert lower.size == 10, "either triangle may say it"
    with pytest.raises(ValueError, match="pattern must have shape"):
        sparse_pattern(np.ones((3, 3)), 4)


def test_an_operator_cannot_give_single_entries():
    with pytest.raises(ValueError, match="LinearOperator"):
        STRUCTURES["banded"].image(parameters(STRUCTURES["banded"]), ROWS["operator"])


def test_operator_scale_is_applied_to_products_and_squares():
    scale = np.linspace(0.5, 2.0, DIM)
    for operator in (squared(H), LinearOperator(H.shape, matvec=H.dot, rmatvec=H.T.dot, dtype=float)):
        rows, plain = make_projection_rows(operator, scale), make_projection_rows(H * scale, np.ones(DIM))
        u, r = np.arange(1.0, DIM + 1), np.arange(1.0, len(H) + 1)
        assert np.allclose(rows.times(u), plain.times(u))
        assert np.allclose(rows.transposed(r), plain.transposed(r))
        assert np.allclose(
            rows.transposed_columns(np.outer(r, [1.0, 2.0])), plain.transposed_columns(np.outer(r, [1.0, 2.0]))
        )
    rows = make_projection_rows(squared(H), scale)
    assert np.allclose(rows.energy(r), plain.energy(r))
