"""Sparse Cholesky factors, their selected inverses and generalised determinants, against dense linear algebra."""

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy import sparse

from latlin.inference.forms.sparse_rows import times_entries
from latlin.numerics.intrinsic import generalised_log_det, hold_coordinates, independent_rows
from latlin.numerics.minimum_degree import minimum_degree
from latlin.numerics.sparse_cholesky import analyse, plan_elimination
from latlin.numerics.weighted_gram import ThinRows, WeightedGram, alike_rows


def differences(n, order):
    """Rows of the differences of that order."""
    rows = sparse.eye_array(n, format="csr")
    for _ in range(order):
        rows = sparse.csr_array(rows[1:] - rows[:-1])
    return rows


def lattice(side):
    """Precision of differences between neighbours on a square."""
    line, one = differences(side, 1), sparse.eye_array(side)
    walk = line.T @ line
    return sparse.csr_array(sparse.kron(walk, one) + sparse.kron(one, walk))


def crossed(count, first, second, seed=0):
    """Rows that pick one level of each of two factors, an intercept and a covariate."""
    rng = np.random.default_rng(seed)
    n = np.arange(count)
    columns = np.stack([rng.integers(first, size=count), first + rng.integers(second, size=count)])
    picked = sparse.csr_array((np.ones(2 * count), (np.tile(n, 2), columns.ravel())), shape=(count, first + second))
    return sparse.csr_array(sparse.hstack([np.ones((count, 1)), picked, rng.standard_normal((count, 1))]))


def random_matrix(seed):
    """A positive definite matrix with some sparsity, 1 to 80 coordinates."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 81))
    root = sparse.random_array((n, n), density=rng.uniform(0.0, 0.15), random_state=rng)
    return sparse.csr_array(root @ root.T + rng.uniform(0.05, 2.0) * sparse.eye_array(n))


def structured():
    """Matrices whose factors have wide panels, dense last columns, chains and separate parts."""
    rows = crossed(300, 40, 12)
    yield sparse.csr_array(rows.T @ rows + 0.3 * sparse.eye_array(rows.shape[1]))
    yield sparse.csr_array(lattice(9) + 0.1 * sparse.eye_array(81))
    yield sparse.csr_array(differences(60, 2).T @ differences(60, 2) + sparse.eye_array(60))
    yield sparse.csr_array(np.cov(np.random.default_rng(0).standard_normal((30, 90))) + np.eye(30))
    yield sparse.csr_array(sparse.block_diag([2.0 * np.eye(3), lattice(5) + sparse.eye_array(25)]))


MATRICES = [*(random_matrix(seed) for seed in range(25)), *structured()]


@pytest.mark.parametrize("matrix", MATRICES, ids=range(len(MATRICES)))
def test_the_factor_answers_as_the_dense_inverse_does(matrix):
    rng, n = np.random.default_rng(0), matrix.shape[0]
    analysis = analyse(matrix)
    chol = analysis.factorise(analysis.values(matrix))
    inverse = np.linalg.inv(matrix.toarray())
    tight = {"rtol": 1e-9, "atol": 1e-11 * np.abs(inverse).max()}
    b = rng.standard_normal((n, 4))
    np.testing.assert_allclose(chol.log_det, np.linalg.slogdet(matrix.toarray())[1], rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(chol.solve(b), inverse @ b, rtol=1e-8, atol=1e-9 * np.abs(inverse).max())
    np.testing.assert_allclose(chol.solve(b[:, 0]), chol.solve(b)[:, 0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(chol.inverse_diagonal, np.diagonal(inverse), **tight)
    i, j = analysis.order[analysis.indices], analysis.order[np.repeat(np.arange(n), np.diff(analysis.indptr))]
    np.testing.assert_allclose(chol.inverse_values, inverse[i, j], **tight)
    i, j = rng.integers(n, size=30), rng.integers(n, size=30)
    np.testing.assert_allclose(chol.inverse_entries(i, j), inverse[i, j], **tight)
    np.testing.assert_allclose(chol.squares(b.T), np.einsum("dn,de,en->n", b, matrix.toarray(), b), rtol=1e-10)
    root = chol.unwhiten(np.eye(n))
    np.testing.assert_allclose(root @ root.T, inverse, **tight)
    white = chol.whiten(b)
    np.testing.assert_allclose(np.einsum("dn,dn->n", white, white), np.einsum("dn,de,en->n", b, inverse, b), rtol=1e-9)


@pytest.mark.parametrize("matrix", MATRICES)
def test_products_from_the_entries_alone(matrix):
    analysis, v = analyse(matrix), np.random.default_rng(0).standard_normal(matrix.shape[0])
    np.testing.assert_allclose(times_entries(analysis, analysis.values(matrix), v), matrix @ v, atol=1e-12)


@pytest.mark.parametrize("matrix", MATRICES[::6])
def test_variances_of_rows_whether_their_pairs_are_in_the_pattern_or_not(matrix):
    rows = sparse.csr_array(
        sparse.random_array((40, matrix.shape[0]), density=0.3, random_state=np.random.default_rng(1))
    )
    analysis = analyse(matrix)
    chol = analysis.factorise(analysis.values(matrix))
    expected = np.einsum("nd,de,ne->n", rows.toarray(), np.linalg.inv(matrix.toarray()), rows.toarray())
    np.testing.assert_allclose(chol.inverse_squares(rows), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(chol.whitened_squares(rows.toarray()), expected, rtol=1e-9, atol=1e-12)


def test_one_analysis_serves_other_values():
    matrix = lattice(7)
    analysis = analyse(matrix)
    for shift in (0.1, 1.0, 10.0):
        moved = sparse.csr_array(matrix + shift * sparse.eye_array(49))
        chol = analysis.factorise(analysis.values(moved))
        np.testing.assert_allclose(chol.log_det, np.linalg.slogdet(moved.toarray())[1], rtol=1e-12)


def test_determinants_beyond_the_largest_number_and_below_the_smallest():
    pivots = np.concatenate([10.0 ** np.random.default_rng(0).uniform(-150.0, 150.0, 300), [1e-290, 1e250]])
    factor = analyse(sparse.diags_array(pivots)).factorise(pivots)
    assert factor.log_det == pytest.approx(np.sum(np.log(pivots)), rel=1e-13, abs=1e-9)
    small = np.full(200, 1e-8)
    assert analyse(sparse.diags_array(small)).factorise(small).log_det == pytest.approx(200 * np.log(1e-8), rel=1e-14)


def test_matrices_that_are_not_positive_definite_have_no_factor():
    analysis = analyse(lattice(6))
    singular = analysis.values(lattice(6))
    assert analysis.factorise(singular) is None
    assert analysis.factorise(-singular) is None
    assert analysis.factorise(np.full_like(singular, np.nan)) is None
    with pytest.raises(ValueError, match="outside the analysed pattern"):
        analysis.values(np.ones((36, 36)))


def test_the_order_is_a_permutation_that_hardly_fills():
    pattern = lattice(30)
    plan = plan_elimination(pattern)
    assert sorted(plan.order) == list(range(900))
    assert plan.entries < 0.06 * 900 * 900 / 2.0  # the order as it came has about 30 entries per column: twice as many
    chain = differences(500, 2)
    np.testing.assert_array_equal(plan_elimination(sparse.csr_array(chain.T @ chain)).order, np.arange(500))


def test_groups_are_eliminated_before_covariates_without_a_search(monkeypatch):
    def search(*graph):
        raise AssertionError("an order is looked for")

    monkeypatch.setattr("latlin.numerics.sparse_cholesky.minimum_degree", search)
    rng = np.random.default_rng(4)
    groups = sparse.csr_array((np.ones(400), rng.integers(12, size=400), np.arange(401)), shape=(400, 12))
    rows = sparse.csr_array(sparse.hstack([rng.standard_normal((400, 3)), groups]))
    plan = plan_elimination(sparse.csr_array(rows.T @ rows))
    assert set(plan.order[-3:]) == {0, 1, 2}
    assert plan.entries == 12 * 4 + 6


def test_dense_columns_come_last():
    rows = crossed(2000, 900, 4)
    order = plan_elimination(sparse.csr_array(rows.T @ rows)).order
    assert {0, rows.shape[1] - 1} <= set(order[-6:])
    indptr, indices = np.array([0, 1, 2]), np.array([1, 0])
    assert sorted(minimum_degree(indptr, indices)) == [0, 1]


def test_weighted_gram_matrices_and_squares():
    rng, rows = np.random.default_rng(0), crossed(200, 20, 7)
    analysis = analyse(rows.T @ rows)
    gram, weights = WeightedGram(analysis, rows), rng.standard_normal(200)
    expected = (rows.T @ sparse.diags_array(weights) @ rows).toarray()
    i, j = analysis.order[analysis.indices], analysis.order[np.repeat(np.arange(29), np.diff(analysis.indptr))]
    np.testing.assert_allclose(gram.total(weights), expected[i, j], atol=1e-12)
    z = analysis.values(rows.T @ rows)
    full = (rows.T @ rows).toarray()
    np.testing.assert_allclose(gram.squares(z), np.einsum("nd,de,ne->n", rows.toarray(), full, rows.toarray()))


@pytest.mark.parametrize(("n", "order"), [(8, 1), (30, 1), (25, 2), (15, 3)])
def test_generalised_determinants_of_random_walks(n, order):
    walk = sparse.csr_array(1.7 * differences(n, order).T @ differences(n, order))
    expected = np.log(np.linalg.eigvalsh(walk.toarray())[order:]).sum()
    np.testing.assert_allclose(generalised_log_det(walk, n - order, "walk"), expected, rtol=1e-9)


def test_the_generalised_determinant_of_a_long_random_walk_of_order_two():
    n = 20_000
    walk = sparse.csr_array(differences(n, 2).T @ differences(n, 2))
    # |CᵀC|₊ = det CCᵀ = n²(n² − 1)/12
    expected = 2.0 * np.log(n) + np.log(n**2 - 1.0) - np.log(12.0)
    np.testing.assert_allclose(generalised_log_det(walk, n - 2, "walk"), expected, rtol=1e-6)


def test_generalised_determinants_of_several_parts():
    walk = differences(20, 2)
    parts = sparse.csr_array(sparse.block_diag([lattice(6), walk.T @ walk, 3.0 * lattice(3)]))
    expected = np.log(np.sort(np.linalg.eigvalsh(parts.toarray()))[4:]).sum()
    np.testing.assert_allclose(generalised_log_det(parts, parts.shape[0] - 4, "parts"), expected, rtol=1e-10)


def test_ranks_that_are_not_so_are_refused():
    with pytest.raises(ValueError, match="fewer than 2 directions"):
        generalised_log_det(lattice(5), 23, "precision")
    with pytest.raises(ValueError, match="needs its rank="):
        generalised_log_det(lattice(5), 25, "precision")
    with pytest.raises(ValueError, match="semi-definite of rank 2"):
        generalised_log_det(sparse.csr_array(np.diag([1.0, -1.0, 2.0])), 2, "precision")


def test_no_more_coordinates_are_held_than_allowed():
    analysis = analyse(lattice(4))
    values = analysis.values(lattice(4))
    assert hold_coordinates(analysis, values, 0) is None
    held = hold_coordinates(analysis, values, 3)
    assert len(held.held) == 1


def test_dependent_constraints_are_dropped_and_contradictions_refused():
    A = sparse.csr_array(np.array([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [0.0, 1.0, -1.0]]))
    rows, e = independent_rows(A, np.array([3.0, 6.0, 0.5]))
    assert rows.shape == (2, 3)
    solution = np.linalg.lstsq(rows, e)[0]
    np.testing.assert_allclose(A @ solution, [3.0, 6.0, 0.5])
    with pytest.raises(ValueError, match="contradict"):
        independent_rows(A, np.array([3.0, 5.0, 0.5]))
    with pytest.raises(ValueError, match="row of zeros"):
        independent_rows(sparse.csr_array(np.zeros((1, 3))), np.zeros(1))


@pytest.mark.parametrize("matrix", [lattice(5), differences(9, 1).T @ differences(9, 1)], ids=["lattice", "walk"])
def test_parts_of_an_analysis_that_do_not_fit_together_are_refused(matrix):
    matrix = sparse.csr_array(matrix + sparse.eye_array(matrix.shape[0]))
    analysis = analyse(matrix)
    analysis.check_stored()
    for field in fields(analysis):
        right = getattr(analysis, field.name)
        wrongs = [
            right[:-1],
            right.astype(float),
            right + 1,
            right - 1,
            np.append(right, 0),
            np.append(right, right[-1:]),
        ]
        if field.name == "order":  # another order is an order too
            wrongs = [wrong for wrong in wrongs if len(wrong) != len(right) or wrong.dtype != right.dtype]
        for wrong in wrongs:
            with pytest.raises(ValueError, match="do not fit together"):
                replace(analysis, **{field.name: wrong}).check_stored()
    factor = analysis.factorise(analysis.values(matrix))
    factor.check_stored()
    with pytest.raises(ValueError, match="does not fit its analysis"):
        replace(factor, panels=factor.panels[:-1]).check_stored()


@pytest.mark.parametrize("missing", [0, 1])
def test_columns_that_all_rows_have_are_kept_apart(missing):
    rng, n = np.random.default_rng(5), 60
    dense = np.where(rng.random((n, 9)) < 0.2, rng.standard_normal((n, 9)), 0.0)
    dense[:, [2, 6, 7]] = rng.standard_normal((n, 3))
    dense[:missing, 6] = 0.0
    rows, analysis = sparse.csr_array(dense), analyse(sparse.csr_array(np.ones((9, 9))))
    assert ThinRows.of(rows).full.tolist() == ([2, 7] if missing else [2, 6, 7])
    gram, weights, Z = WeightedGram(analysis, rows), rng.standard_normal(n), rng.standard_normal((9, 9))
    i, j = analysis.order[analysis.indices], analysis.order[np.repeat(np.arange(9), np.diff(analysis.indptr))]
    np.testing.assert_allclose(gram.total(weights), (dense.T @ (weights[:, None] * dense))[i, j], atol=1e-12)
    np.testing.assert_allclose(gram.squares((Z + Z.T)[i, j]), np.sum(dense @ (Z + Z.T) * dense, axis=1), atol=1e-12)


@pytest.mark.parametrize("twice", [False, True])
def test_rows_of_one_entry_each_add_to_the_diagonal(twice):
    rng = np.random.default_rng(3)
    columns = rng.integers(6, size=9) if twice else rng.permutation(9)
    dim = 6 if twice else 9
    rows = sparse.csr_array((rng.standard_normal(9), columns, np.arange(10)), shape=(9, dim))
    chain = sparse.diags_array([-np.ones(dim - 1), np.full(dim, 2.5), -np.ones(dim - 1)], offsets=[-1, 0, 1])
    analysis = analyse(sparse.csr_array(chain))
    gram, weights = WeightedGram(analysis, rows), rng.standard_normal(9)
    H = rows.toarray()
    np.testing.assert_allclose(gram.total(weights), analysis.values(sparse.csr_array(H.T * weights @ H)), atol=1e-14)
    before = rng.standard_normal(len(analysis.indices))
    np.testing.assert_allclose(gram.added(before, weights), before + gram.total(weights), atol=1e-14)
    Z = np.linalg.inv(chain.toarray())
    inside = np.where(np.abs(np.subtract.outer(np.arange(dim), np.arange(dim))) <= 1, Z, 0.0)
    np.testing.assert_allclose(
        gram.squares(analysis.values(sparse.csr_array(inside))), np.einsum("nd,de,ne->n", H, Z, H), atol=1e-14
    )


def test_rows_with_the_same_columns_share_their_pairs():
    rng = np.random.default_rng(3)
    # so many kinds that some meet in the table of kinds
    pattern = rng.random((3000, 14)) < 0.4
    kinds, n = rng.integers(3000, size=6000), 6000
    rows = sparse.csr_array(np.where(pattern[kinds], rng.standard_normal((n, 14)), 0.0))
    seen: dict[bytes, int] = {}
    assert alike_rows(rows).tolist() == [seen.setdefault(pattern[kind].tobytes(), k) for k, kind in enumerate(kinds)]
    analysis = analyse(sparse.csr_array(np.ones((14, 14))))
    gram = WeightedGram(analysis, rows)
    i, j = analysis.order[analysis.indices], analysis.order[np.repeat(np.arange(14), np.diff(analysis.indptr))]
    for weights in (rng.standard_normal(n), rng.random(n)):
        expected = rows.toarray().T @ (weights[:, None] * rows.toarray())
        np.testing.assert_allclose(gram.total(weights), expected[i, j], atol=1e-10)
        assert gram.total(weights.copy()) is gram.total(weights)
    assert not WeightedGram(analysis, sparse.csr_array(rows[::-1])).looked_up
