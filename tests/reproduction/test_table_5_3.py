"""Table 5.3: every printed number has its line, and the reasons that could be tested are rows."""

import numpy as np
import pytest
from scipy import sparse

from latlin.engines import GaussianKL
from latlin import infer
from latlin import GaussianFactor, LatentLinearModel, SiteFactor
from latlin.potentials import Logit
from reproduction import sparse_text, table_5_3
from reproduction.page import Measured, differs
from reproduction.subspace_slip import slipped_subspace


@pytest.fixture(scope="module")
def values():
    split = table_5_3.generated(0, 150, 200)
    assert set(np.diff(split.x.indptr)) == {table_5_3.SET}
    scores = table_5_3.scores(split, 10)
    orders = {table_5_3.ORDERS: table_5_3.other_orders(split, 10, 2)}
    return {name: np.array([found, found + 1.0, found - 1.0]) for name, found in scores.items()} | orders


def test_no_bound_exceeds_the_full_one_and_every_number_is_listed(values):
    for name in values:
        assert values[name][0, 0] <= values["full"][0, 0] + 0.1
    claims = table_5_3.claims(values, "")
    assert len(claims) == 2 + 34
    assert sum(claim.agrees is None for claim in claims) == 22
    assert all(claim.reason for claim in claims if differs(claim))


def test_a_bound_is_met_by_its_row_and_refuted_by_the_others(values):
    theirs = Measured(-5379.0, 0.0, 0)
    slip = {table_5_3.SLIP: np.array([[-5379.4, 1.0, 15.0]])}
    said = table_5_3.explained("bound", "subspace", theirs, values | slip)
    assert said.startswith(f'met by row "{table_5_3.SLIP}"')
    assert f'not by row "{table_5_3.TEXT}"' in said
    assert table_5_3.explained("bound", "subspace", theirs, values).startswith("not explained")


def test_a_chevron_may_have_had_its_columns_in_another_order(values):
    low, high = np.sort(values[table_5_3.ORDERS][:, 0])
    assert table_5_3._in_span(Measured(0.5 * (low + high)), values, 0)[1]
    assert not table_5_3._in_span(Measured(low - 1.0), values, 0)[1]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Sixty rows of words, of which the last eight columns are in no training row."""
    rng = np.random.default_rng(0)
    x = np.where(rng.random((80, 30)) < 0.2, rng.random((80, 30)), 0.0)
    x[:60, 22:] = 0.0
    rows = sparse.csr_array(x)
    path = tmp_path_factory.mktemp("text") / sparse_text.FILE
    y = np.where(rng.random(80) < 0.5, 1, -1)
    parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr, "shape": np.array(rows.shape)}
    np.savez(path, **parts, y=y, n_train=np.array(60))
    return sparse_text.Rows(path)


def test_the_basis_of_the_text_is_the_columns_that_no_row_uses(text):
    """The short cut has the bound of the subspace spanned by those columns, and of the slip on it."""
    found = sparse_text.text_basis(text, 5)
    model = LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(text.x, Logit(text.y))])
    basis = np.eye(30)[:, 22:27]
    whole = infer(model, GaussianKL(covariance="subspace", rank=5, basis=basis, inner="diagonal", tol=1e-6))
    assert found[sparse_text.TEXT][0] == pytest.approx(whole.log_evidence, abs=1e-2)
    slip = slipped_subspace(text.x.toarray(), Logit(text.y), basis, rounds=2000)
    # the mean is that of the right weight, which moves c² a little
    assert found[sparse_text.TEXT_SLIP][0] == pytest.approx(slip.bound, abs=1.0)
    assert slip.bound < whole.log_evidence - 10.0


def test_the_order_of_the_covariances_is_what_is_compared():
    found = {
        name: np.array([bound, 1.0, 3.4])
        for name, bound in (("diagonal", -2577.0), ("chevron", -2564.0), ("subspace", -2463.0))
    }
    found |= {sparse_text.TEXT: np.array([-2871.0, 1.0, 3.5]), sparse_text.TEXT_SLIP: np.array([-75000.0, 0.0, 3.5])}
    chevron, subspace, errors = sparse_text.claims(found)[3:]
    assert (chevron.agrees, subspace.agrees, errors.agrees) == (True, False, True)
    assert f'met by row "{sparse_text.TEXT}" (-294); not by' in subspace.reason
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
