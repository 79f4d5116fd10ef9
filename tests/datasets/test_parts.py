"""Tables part by part: nothing is lost or put in another order, and a file is whole or not there."""

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

from latlin.datasets.table import (  # noqa: E402
    append_rows,
    read_parts,
    read_table,
    table_files,
)


@pytest.fixture
def frame():
    return pandas.DataFrame({"a": np.arange(7.0), "b": list("xyzxyzx"), "c": [1, 2, 3, 4, 5, 6, 7]})


def test_parquet_comes_in_parts(frame, tmp_path):
    frame.iloc[2:].to_parquet(tmp_path / "t.parquet")
    parts = list(read_parts(tmp_path / "t.parquet", rows=2))
    assert [(len(part.rows), part.first, part.whole) for part in parts] == [(2, 0, False), (2, 2, False), (1, 4, False)]
    joined = pandas.concat([part.rows for part in parts], ignore_index=True)
    pandas.testing.assert_frame_equal(joined, frame.iloc[2:].reset_index(drop=True))
    assert next(read_parts(tmp_path / "t.parquet")).whole
    frame.head(0).to_parquet(tmp_path / "none.parquet")
    assert list(read_parts(tmp_path / "none.parquet")) == []


def test_texts_come_as_a_whole(frame, tmp_path):
    frame.to_csv(tmp_path / "t.csv", index=False)
    (part,) = read_parts(tmp_path / "t.csv")
    pandas.testing.assert_frame_equal(part.rows, frame)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.parquet"])
def test_parts_are_put_together_again(frame, tmp_path, name):
    with append_rows(tmp_path / name) as add:
        for start in range(0, 7, 3):
            add(frame.iloc[start : start + 3])
        assert not (tmp_path / name).exists()
    pandas.testing.assert_frame_equal(read_table(tmp_path / name), frame)


def test_kinds_stay_those_of_the_first_part(tmp_path):
    first = pandas.DataFrame({"n": [1, 2], "gap": [None, None]})
    second = pandas.DataFrame({"n": [3.0, np.nan], "gap": ["x", None]})
    with append_rows(tmp_path / "t.parquet") as add:
        add(first)
        add(second)
    found = read_table(tmp_path / "t.parquet")
    np.testing.assert_array_equal(found["n"], [1.0, 2.0, 3.0, np.nan])
    assert found["gap"].isna().tolist() == [True, True, False, True]


def test_what_does_not_fit_leaves_the_old_file(frame, tmp_path):
    path = tmp_path / "t.parquet"
    frame.to_parquet(path)
    with append_rows(path) as add:
        add(frame)
        with pytest.raises(ValueError, match="do not fit beside"):
            add(frame.assign(c="text"))
        with pytest.raises(ValueError, match="do not fit beside"):
            add(frame.drop(columns="c"))
    pandas.testing.assert_frame_equal(read_table(path), frame)
    with pytest.raises(ZeroDivisionError), append_rows(path) as add:
        add(frame.head(1 // 0))
    pandas.testing.assert_frame_equal(read_table(path), frame)
    assert [each.name for each in tmp_path.iterdir()] == ["t.parquet"]


def test_files_by_name_and_by_pattern(frame, tmp_path):
    for name in ("b.csv", "a.csv", "[1].csv"):
        frame.to_csv(tmp_path / name, index=False)
    assert [path.name for path in table_files(tmp_path / "?.csv")] == ["a.csv", "b.csv"]
    assert [path.name for path in table_files(tmp_path / "[1].csv")] == ["[1].csv"]
    with pytest.raises(FileNotFoundError, match="no file"):
        table_files(tmp_path / "c*.csv")


def test_what_is_no_table_is_told(tmp_path):
    (tmp_path / "t.parquet").write_text("nothing")
    with pytest.raises(ValueError, match=r"t\.parquet is not a readable Parquet file"):
        list(read_parts(tmp_path / "t.parquet"))
    with pytest.raises(ValueError, match=r"is a folder.*\*\.parquet"):
        list(read_parts(tmp_path))
    with pytest.raises(ValueError, match="part by part"), append_rows(tmp_path / "t.csv.zip"):
        pass
