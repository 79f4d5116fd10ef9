"""Sums over Dask collections: the digits of local blocks, dense and sparse rows, data frames, rows that do not fit."""

import numpy as np
import pytest
from scipy import sparse

from latlin.distributed.blocks import LocalBlocks, MappedBlocks
from latlin.distributed.dask_blocks import DaskBlocks
from latlin.distributed.opening import is_blocked, open_blocks

da = pytest.importorskip("dask.array", reason="Dask is not installed")
dd = pytest.importorskip("dask.dataframe", reason="Dask's data frames are not installed")
pd = pytest.importorskip("pandas", reason="pandas is not installed")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def products(block, shift):
    return block.n_rows, ((block.X - shift).T * block.y) @ block.X, block.X.sum(axis=0)


def sparse_products(block):
    return (block.X.T @ block.X).toarray(), block.X.T @ block.y


def number(block):
    return block.number, block.n_rows, block.X.dtype.name


def last_row(block, state, factor):
    return factor * state + block.X[-1]


def same_digits(first, second):
    return len(first) == len(second) and all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("rows", [100, 51, 7, 1])
def test_the_digits_are_those_of_local_blocks(rows, rng):
    X, y = rng.standard_normal((100, 3)), rng.standard_normal(100)
    there = open_blocks(da.from_array(X, chunks=(rows, 2)), da.from_array(y, chunks=13))
    here = LocalBlocks.of(X, y, rows=rows)
    assert isinstance(there, DaskBlocks)
    assert is_blocked(there)
    assert open_blocks(there) is there
    assert (there.n_blocks, there.n_columns) == (here.n_blocks, 3)
    assert same_digits(there.total(products, 0.5), here.total(products, 0.5))
    assert there.each(number) == here.each(number)
    np.testing.assert_array_equal(there.fold(last_row, np.zeros(3), 0.5), here.fold(last_row, np.zeros(3), 0.5))


def test_two_passes_give_two_answers(rng):
    blocks = open_blocks(da.from_array(rng.standard_normal((20, 2)), chunks=(6, 2)), np.ones(20))
    first, second = blocks.total(products, 0.0), blocks.total(products, 1.0)
    assert not np.array_equal(first[1], second[1])


def test_blocks_are_visited_in_the_order_asked_for(rng):
    X = rng.standard_normal((20, 2))
    blocks = open_blocks(da.from_array(X, chunks=(5, 2)))
    np.testing.assert_array_equal(blocks.fold(last_row, np.zeros(2), 0.0, order=[3, 1]), X[9])


def test_sparse_blocks_stay_sparse(rng):
    X = sparse.random_array((60, 4), density=0.3, random_state=rng, format="csr")
    parts = [
        da.from_delayed(_delayed(X[start : start + 25]), X[start : start + 25].shape, float) for start in (0, 25, 50)
    ]
    y = rng.standard_normal(60)
    there = open_blocks(da.concatenate(parts), y)
    assert same_digits(there.total(sparse_products), LocalBlocks.of(X, y, rows=25).total(sparse_products))


def _delayed(value):
    from dask import delayed

    return delayed(value)


def frame(rng, n=50):
    return pd.DataFrame({"a": rng.standard_normal(n), "b": rng.integers(0, 9, n), "c": rng.random(n) < 0.5})


def test_data_frames_of_mixed_numbers(rng):
    table = frame(rng)
    table["y"] = rng.standard_normal(50)
    rows = dd.from_pandas(table, npartitions=3)
    blocks = open_blocks(rows[["a", "b", "c"]], rows["y"], weight=rows["a"])
    n, product, total = blocks.total(products, 0.0)
    assert n == 50
    X = table[["a", "b", "c"]].to_numpy(float)
    np.testing.assert_allclose(product, (X.T * table["y"].to_numpy()) @ X, rtol=1e-12)
    np.testing.assert_allclose(total, X.sum(axis=0), rtol=1e-12)


def test_single_precision_frames_stay_so_and_gaps_become_nan():
    table = pd.DataFrame({"a": np.ones(4, np.float32)})
    assert open_blocks(dd.from_pandas(table, npartitions=1)).each(number) == [(0, 4, "float32")]
    gaps = pd.DataFrame({"a": pd.array([1, None], dtype="Int64")})
    total = open_blocks(dd.from_pandas(gaps, npartitions=1), da.ones(2)).total(products, 0.0)
    assert np.isnan(total[2]).all()


def test_blocks_without_rows_are_passed_over(rng):
    table = frame(rng)
    rows = dd.from_pandas(table, npartitions=4)
    some = rows[rows["a"] > table["a"].iloc[:39].max()]
    kept = table[table["a"] > table["a"].iloc[:39].max()]
    blocks = open_blocks(some[["a"]], some["a"])
    assert len(kept) > 0
    assert blocks.total(products, 0.0)[0] == len(kept)
    assert sum(rows for _, rows, _ in blocks.each(number)) == len(kept)
    assert blocks.fold(last_row, np.zeros(1), 1.0).shape == (1,)
    none = rows[rows["a"] > 100.0]
    with pytest.raises(ValueError, match="no rows"):
        open_blocks(none[["a"]], none["a"]).total(products, 0.0)


def test_lengths_need_not_be_known(rng):
    table = frame(rng)
    rows = dd.from_pandas(table, npartitions=3)
    X = rows[["a", "b"]].to_dask_array()
    assert np.isnan(X.shape[0])
    np.testing.assert_allclose(
        open_blocks(X, rows["b"]).total(products, 0.0)[2], table[["a", "b"]].to_numpy().sum(axis=0), rtol=1e-12
    )


def test_changed_blocks(rng):
    X = rng.standard_normal((30, 2))
    blocks = MappedBlocks(open_blocks(da.from_array(X, chunks=(8, 2)), np.ones(30)), doubled)
    np.testing.assert_allclose(blocks.total(products, 0.0)[2], 2.0 * X.sum(axis=0), rtol=1e-12)


def doubled(block):
    return block._replace(X=2.0 * block.X)


@pytest.mark.parametrize(
    ("X", "beside", "text"),
    [
        (lambda: da.ones((6, 2)), {"y": da.ones(5)}, "y has shape"),
        (lambda: da.ones((6, 2)), {"weight": np.ones(5)}, "sample_weight has shape"),
        (lambda: da.ones(6), {}, "two dimensions"),
        (lambda: da.ones((0, 2)), {}, "no rows"),
        (lambda: da.ones((6, 0)), {}, "no columns"),
        (lambda: da.ones((6, 2), dtype=complex), {}, "X must hold real numbers, got an array of complex128"),
        (lambda: da.ones((6, 2)).astype(str), {}, "X must hold real numbers"),
        (lambda: dd.from_pandas(pd.DataFrame({"a": [1.0] * 6}), npartitions=2)[[]], {}, "without columns"),
        (lambda: dd.from_pandas(pd.DataFrame({"a": ["x", "y"]}), npartitions=1), {}, "'a'"),
        (lambda: dd.from_pandas(pd.DataFrame({"a": [1.0] * 6}), npartitions=2), {"y": np.ones(6)}, "lengths"),
        (lambda: dd.from_pandas(pd.DataFrame({"a": [1.0] * 6}), npartitions=2), {"y": da.ones(6)}, "blocks of rows"),
        (lambda: _delayed(np.ones((3, 2))), {}, "dask.array or a dask.dataframe"),
    ],
)
def test_what_does_not_fit_is_named(X, beside, text):
    assert is_blocked(X())
    with pytest.raises(ValueError, match=text):
        open_blocks(X(), **beside)


def test_rows_that_do_not_belong_together_are_refused(rng):
    rows = dd.from_pandas(frame(rng), npartitions=2)
    with pytest.raises(ValueError, match="rows in block"):
        open_blocks(rows[["a"]], da.ones(50, chunks=((20, 30),))).total(products, 0.0)
    other = dd.from_pandas(frame(rng).set_index(np.arange(50) + 7), npartitions=2)
    with pytest.raises(ValueError, match="another index"):
        open_blocks(rows[["a"]], other["a"]).total(products, 0.0)


def test_errors_of_a_summand_pass_as_they_are(rng):
    with pytest.raises(ZeroDivisionError):
        open_blocks(da.ones((6, 2), chunks=(3, 2))).each(failing)


def failing(block):
    return 1 // 0
