"""Rows on disk, read by name, block by block."""

import numpy as np
import pytest

from latlin.distributed.opening import open_blocks
from latlin.distributed.reading import read_rows

pytest.importorskip("dask.dataframe", reason="Dask is not installed")
pd = pytest.importorskip("pandas", reason="pandas is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")


def sums(block):
    return block.n_rows, block.X.sum(axis=0), block.y @ block.X


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.standard_normal(30), "y": rng.standard_normal(30), "b": rng.integers(0, 5, 30)})


def test_parquet_files_in_the_order_of_their_names(table, tmp_path):
    for part, start in enumerate((0, 10, 20)):
        table.iloc[start : start + 10].to_parquet(tmp_path / f"{part}.parquet")
    X, y = read_rows(tmp_path / "*.parquet", target="y")
    assert list(X.columns) == ["a", "b"]
    np.testing.assert_array_equal(y.compute().to_numpy(), table["y"].to_numpy())
    blocks = open_blocks(X, y)
    n, total, product = blocks.total(sums)
    assert (n, blocks.n_blocks) == (30, 3)
    matrix = table[["a", "b"]].to_numpy(float)
    np.testing.assert_allclose(total, matrix.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(product, table["y"].to_numpy() @ matrix, rtol=1e-12)
    assert read_rows(tmp_path / "*.parquet").y is None


def test_arrays_are_mapped_where_they_are_used(tmp_path):
    X, y = np.arange(20.0, dtype=np.float32).reshape(10, 2), np.arange(10.0)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", y)
    blocks = open_blocks(read_rows(tmp_path / "x.npy", rows=4).X, read_rows(tmp_path / "y.npy", rows=4).X)
    assert blocks.each(is_mapped) == [True, True, True]
    assert not blocks.graph, "reading is part of the task that sums"
    np.testing.assert_array_equal(blocks.total(sums)[2], y @ X)
    both = read_rows(tmp_path / "[x]*.npy").X
    assert both.chunks == ((10,), (2,))


def is_mapped(block):
    return isinstance(block.X.base, np.memmap) and block.X.dtype == np.float32


def test_what_is_not_there_is_named(table, tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        read_rows(tmp_path / "nothing-*.parquet")
    table.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"'z'.*'a'"):
        read_rows(tmp_path / "t.parquet", target="z")
    np.save(tmp_path / "x.npy", np.ones((2, 2)))
    with pytest.raises(ValueError, match="have no names"):
        read_rows(tmp_path / "x.npy", target="y")
    np.save(tmp_path / "cube.npy", np.ones((2, 2, 2)))
    table.to_csv(tmp_path / "t.csv")
    with pytest.raises(ValueError, match=r"t\.csv is a table of text"):
        read_rows(tmp_path / "t.csv")
    with pytest.raises(ValueError, match="expected rows"):
        read_rows(tmp_path / "cube.npy")


def test_a_file_without_a_column_of_the_others_is_named(table, tmp_path):
    table.to_parquet(tmp_path / "0.parquet")
    table.rename(columns={"b": "c"}).to_parquet(tmp_path / "1.parquet")
    with pytest.raises(ValueError, match=r"1\.parquet has no column 'b', which .*0\.parquet has"):
        read_rows(tmp_path / "*.parquet")


def test_a_file_that_is_not_parquet_is_named(table, tmp_path):
    table.to_parquet(tmp_path / "0.parquet")
    (tmp_path / "1.parquet").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"1\.parquet is not a readable Parquet file"):
        read_rows(tmp_path / "*.parquet")
