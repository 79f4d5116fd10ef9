"""Tables: what is written is read back; what cannot be read is said in a sentence, and nothing is half written."""

import sys

import numpy as np
import pytest

from latlin.datasets import read_table, write_table
from latlin.datasets.table import repeat_rows

pandas = pytest.importorskip("pandas")


@pytest.fixture
def frame():
    return pandas.DataFrame({"age": [30.5, np.nan, 40.0], "city": ["Rome", "Osló", np.nan]})


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.parquet"])
def test_a_table_comes_back_as_it_was(frame, tmp_path, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    write_table(tmp_path / name, frame)
    # kinds of columns that know one sort of gap only
    pandas.testing.assert_frame_equal(read_table(tmp_path / name).convert_dtypes(), frame.convert_dtypes())
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_parquet_without_its_library_names_the_extra(frame, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"install latlin\[parquet\]"):
        write_table(tmp_path / "t.parquet", frame)
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_file(frame, tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    write_table(path, frame)
    before = path.read_bytes()

    def full_disk(self, target, **options):
        target.write_text("half a fi")
        raise OSError("No space left on device")

    monkeypatch.setattr(pandas.DataFrame, "to_csv", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_table(path, frame)
    assert path.read_bytes() == before
    assert [left.name for left in tmp_path.iterdir()] == ["t.csv"]


def test_what_is_no_table_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_table(tmp_path / "none.csv")
    for name, content, words in [
        ("t.xls", "a,b\n1,2\n", "no table by its name"),
        ("empty.csv", "", "cannot be read"),
        ("ragged.csv", "a,b\n1,2\n1,2,3,4\n", "cannot be read"),
        ("head.csv", "a,b\n", "no rows"),
        ("semicolons.csv", "a;b\n1;2\n3;4\n", "must be separated by ',', and seem to be by ';'"),
        ("decimals.csv", "a;b\n1,5;2,5\n", "must be separated by ',', and seem to be by ';'"),
        ("commas.tsv", "a,b\n1,2\n", "and seem to be by ','"),
        ("spare.csv", "a,b\n1,2,3\n4,5,6\n", "more cells than there are column names"),
        ("twice.csv", "a,b,a\n1,2,3\n4,5,6\n", "'a' occurs more than once"),
    ]:
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=words):
            read_table(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_table(tmp_path / "nowhere" / "t.csv", pandas.DataFrame({"a": [1]}))


def test_rows_are_repeated_as_often_as_they_were_observed():
    frame = pandas.DataFrame({"a": list("xyz"), "n": [2, 0, 1]})
    assert repeat_rows(frame, "n").equals(pandas.DataFrame({"a": ["x", "x", "z"]}))


@pytest.mark.parametrize(
    ("counts", "words"), [([1.5, 1, 1], "got 1.5 in row 1"), ([1, -1, 1], "row 2"), (["a", "b", "c"], "holds texts")]
)
def test_frequencies_that_are_no_counts_are_named(counts, words):
    with pytest.raises(ValueError, match=words):
        repeat_rows(pandas.DataFrame({"n": counts}), "n")
    with pytest.raises(ValueError, match="must be a column"):
        repeat_rows(pandas.DataFrame({"n": counts}), "m")
