"""One model written in several ways: dense, sparse and operator rows, permuted rows and columns; bounds in order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from random_models import CONCAVE, ENGINES, attempt, part, parts

UNIQUE = ("logit", "probit", "poisson", "ordinal", "gaussian", "laplace", "logistic")
PROPER = ("scalar", "diagonal", "full", "two", "laplace")


def assert_same(one, other, columns=slice(None)):
    """The same refusal, or the same answer to what the tolerance of a fit leaves, where both are what they claim."""
    assert (one is None) == (other is None)
    if one is None or not (one.converged and other.converged) or one.evidence_kind != other.evidence_kind:
        return
    assert one.log_evidence == pytest.approx(other.log_evidence, rel=1e-5, abs=1e-5, nan_ok=True)
    spread = np.sqrt(one.variance[columns]) + 1e-3 * np.abs(one.mean[columns])
    assert np.all(np.abs(one.mean[columns] - other.mean) <= 1e-3 * spread + 1e-9)
    np.testing.assert_allclose(one.variance[columns], other.variance, rtol=1e-2, atol=1e-12)


@pytest.mark.parametrize("kind", ["sparse", "operator"])
@part(1.0)
@given(
    made=parts(families=UNIQUE, priors=PROPER, widest=1.0),
    name=st.sampled_from(["laplace", "lvb", "ep", "gkl", "chevron"]),
)
def test_rows_of_any_kind_are_dense_rows(kind, made, name):
    one, other = (attempt(made.model(k), ENGINES[name]) for k in ("dense", kind))
    if one is not None and other is not None:
        assert_same(one, other)
    else:
        assert one is None or kind == "operator"


@part(2.0)
@given(
    made=parts(families=UNIQUE, priors=PROPER, widest=1.0),
    name=st.sampled_from(["laplace", "mean-field", "lvb", "ep", "gkl", "diagonal"]),
    seed=st.integers(0, 1000),
)
def test_the_order_of_rows_and_columns_plays_no_role(made, name, seed):
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(len(made.y)), rng.permutation(len(made.mean))
    one, other = (attempt(m.model(), ENGINES[name]) for m in (made, made.permuted(rows, columns)))
    assert_same(one, other, columns)


@part(1.0)
@given(made=parts(families=UNIQUE, priors=PROPER, widest=1.0), name=st.sampled_from(["laplace", "lvb", "gkl"]))
def test_a_weight_of_two_is_a_row_twice(made, name):
    weighted = made._replace(weight=2.0, offset=None)
    twice = made._replace(rows=np.tile(made.rows, (2, 1)), y=np.tile(made.y, 2), weight=None, offset=None)
    assert_same(*(attempt(m.model(), ENGINES[name]) for m in (weighted, twice)))


@part(1.5)
@given(made=parts(families=CONCAVE, priors=PROPER, widest=1.0))
def test_bounds_are_in_order(made):
    model = made.model()
    full, diagonal, chevron, local = (attempt(model, ENGINES[name]) for name in ("gkl", "diagonal", "chevron", "lvb"))
    if full is None or not full.converged:
        return
    slack = 1e-5 * (1.0 + abs(full.log_evidence))
    for lower in (diagonal, chevron, local):
        assert lower is None or lower.log_evidence <= full.log_evidence + slack
    if diagonal is not None and chevron is not None and chevron.converged:
        assert diagonal.log_evidence <= chevron.log_evidence + slack
    if local is not None:
        assert local.log_evidence <= local.kl_bound() + slack
