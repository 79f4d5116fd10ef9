"""Table 5.3: every printed number has its line, and the order of the covariances is compared."""

import numpy as np
import pytest
from scipy import sparse

from latlin.engines import GaussianKL
from reproduction import sparse_text, table_5_3
from reproduction.page import differs


@pytest.fixture(scope="module")
def values():
    split = table_5_3.generated(0, 150, 200)
    assert set(np.diff(split.x.indptr)) == {table_5_3.SET}
    scores = table_5_3.scores(split, 10)
    return {name: np.array([found, found + 1.0, found - 1.0]) for name, found in scores.items()}


def test_no_bound_exceeds_the_full_one_and_every_number_is_listed(values):
    for name in values:
        assert values[name][0, 0] <= values["full"][0, 0] + 0.1
    claims = table_5_3.claims(values, "")
    assert len(claims) == 2 + 34
    assert sum(claim.agrees is None for claim in claims) == 22
    assert all(claim.reason for claim in claims if differs(claim))


def test_the_covariances_of_a_sparse_set(tmp_path):
    """Sixty rows of words: bounds in the order of what the covariances hold, and kept."""
    rng = np.random.default_rng(0)
    rows = sparse.csr_array(np.where(rng.random((80, 30)) < 0.2, rng.random((80, 30)), 0.0))
    parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr, "shape": np.array(rows.shape)}
    np.savez(tmp_path / sparse_text.FILE, **parts, y=np.where(rng.random(80) < 0.5, 1, -1), n_train=np.array(60))
    given = sparse_text.Rows(tmp_path / sparse_text.FILE)
    diagonal, full = (given.fitted(GaussianKL(covariance=kind, tol=1e-6)) for kind in ("diagonal", "full"))
    assert diagonal[0] < full[0]
    assert given.new_x.shape == (20, 30)
    assert 0.0 <= full[2] <= 100.0


def test_the_order_of_the_covariances_is_what_is_compared():
    found = {
        name: np.array([bound, 1.0, 3.4])
        for name, bound in (("diagonal", -2577.0), ("chevron", -2564.0), ("subspace", -2463.0))
    }
    chevron, subspace, errors = sparse_text.claims(found)[3:]
    assert (chevron.agrees, subspace.agrees, errors.agrees) == (True, False, True)
    assert subspace.ours == "above (+114)"
    assert all(claim.agrees is None for claim in sparse_text.claims(None))


def test_a_set_of_your_own_is_halved(tmp_path):
    x = table_5_3.generated(1, 40, 2).x
    parts = {"data": x.data, "indices": x.indices, "indptr": x.indptr, "shape": np.array(x.shape)}
    np.savez(tmp_path / "a9a.npz", **parts, y=np.ones(40), n_train=np.array(40))
    split = table_5_3.from_file(tmp_path / "a9a.npz", 0)
    assert split.x.shape == (19, 123)
    assert split.new_x.shape == (21, 123)
    np.testing.assert_array_equal(split.x.toarray(), x[:19].toarray())
    assert np.any(table_5_3.from_file(tmp_path / "a9a.npz", 1).x.toarray() != x[:19].toarray())
