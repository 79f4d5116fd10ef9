"""Encoding: names, indicators, gaps; new rows go the same way, or the cell that does not fit is named."""

import json

import numpy as np
import pytest

from latlin.datasets import Encoding, learn_encoding
from latlin.datasets.encoding import describe_columns

pandas = pytest.importorskip("pandas")


@pytest.fixture
def frame():
    return pandas.DataFrame(
        {
            "age": [30, 40, 50, 60],
            "city": ["Rome", "Oslo", "Bonn", "Rome"],
            "smokes": ["no", "yes", "no", "no"],
            "works": [True, False, True, True],
            "same": [1, 1, 1, 1],
            "y": [1.0, 2.0, 3.0, 4.0],
        }
    )


def test_names_and_numbers(frame):
    encoding = learn_encoding(frame, "y")
    assert encoding.names == ["age", "city=Oslo", "city=Rome", "smokes=yes", "works"]
    assert encoding.left_out == ("same",)
    matrix = encoding.encode(frame).matrix
    assert list(matrix.columns) == encoding.names
    np.testing.assert_array_equal(matrix.loc[1], [40, 1, 0, 1, 0])
    np.testing.assert_array_equal(matrix.loc[3], [60, 0, 1, 0, 1])


def test_numbers_can_stand_for_levels_and_columns_can_be_left_out(frame):
    frame["ward"] = [1, 2, 3, 1]
    assert learn_encoding(frame, "y", categorical=["ward"], drop=["city", "works", "smokes", "age"]).names == [
        "ward=2",
        "ward=3",
    ]


def test_codings_and_references(frame):
    treatment = learn_encoding(frame, "y", drop=["age", "smokes", "works"], reference={"city": "Rome"})
    assert treatment.names == ["city=Bonn", "city=Oslo"]
    np.testing.assert_array_equal(treatment.encode(frame).matrix, [[0, 0], [0, 1], [1, 0], [0, 0]])
    total = learn_encoding(frame, "y", drop=["age", "smokes", "works"], coding="sum")
    assert total.names == ["city=Oslo", "city=Rome"]
    np.testing.assert_array_equal(total.encode(frame).matrix, [[0, 1], [1, 0], [-1, -1], [0, 1]])
    assert total.factors["city"]["baseline"] == "the mean of its levels"
    each = learn_encoding(frame, "y", drop=["age", "smokes", "works"], coding="one-hot")
    assert each.names == ["city=Bonn", "city=Oslo", "city=Rome"]
    with pytest.raises(ValueError, match="the reference of 'city' must be one of 'Bonn', 'Oslo', 'Rome', got 'Paris'"):
        learn_encoding(frame, "y", reference={"city": "Paris"})
    with pytest.raises(ValueError, match="coding must be one of 'treatment', 'sum', 'one-hot', got 'dummy'"):
        learn_encoding(frame, "y", coding="dummy")
    old = {"name": "city", "levels": ["Bonn", "Oslo", "Rome"], "fill": "Rome"}
    assert Encoding.from_json({"columns": [old], "missing": "error", "left_out": []}).names == each.names


def test_all_odd_columns_are_named_in_one_message():
    n = 40
    frame = pandas.DataFrame(
        {
            "dose": ["1.5"] * (n - 3) + ["n/a", "?", "n/a"],
            "name": [f"person {i}" for i in range(n)],
            "y": np.arange(n),
        }
    )
    with pytest.raises(ValueError, match="2 columns need a word") as told:
        learn_encoding(frame, "y")
    assert "column 'dose': 3 of 40 cells are not numbers: 'n/a' in row 38, '?' in row 39" in str(told.value)
    assert "--missing-values 'n/a,?'" in str(told.value)
    assert "column 'name' holds 40 different texts" in str(told.value)


def test_levels_do_not_change_with_the_type_of_the_column(frame):
    encoding = learn_encoding(frame.assign(ward=[1, 2, 3, 1]), "y", categorical=["ward"], missing="impute")
    again = encoding.encode(frame.assign(ward=[1.0, np.nan, 3.0, 1.0])).matrix
    np.testing.assert_array_equal(again[["ward=2", "ward=3"]], [[0, 0], [0, 0], [0, 1], [0, 0]])


def test_it_survives_json(frame):
    encoding = learn_encoding(frame, "y", missing="impute")
    assert Encoding.from_json(json.loads(json.dumps(encoding.to_json()))) == encoding


def test_other_columns_and_another_order_do_not_matter(frame):
    encoding = learn_encoding(frame, "y")
    shuffled = frame[["works", "city", "age", "smokes"]].assign(more=0)
    pandas.testing.assert_frame_equal(encoding.encode(shuffled).matrix, encoding.encode(frame).matrix)


def test_gaps(frame):
    frame = frame.astype({"age": float})
    frame.loc[0, "age"], frame.loc[1, "city"], frame.loc[0, "city"] = np.nan, None, None
    with pytest.raises(ValueError, match=r"'age' 1, 'city' 2 of 4 rows.*--missing"):
        learn_encoding(frame, "y").encode(frame)
    dropped = learn_encoding(frame, "y", missing="drop").encode(frame)
    np.testing.assert_array_equal(dropped.kept, [False, False, True, True])
    assert list(dropped.matrix.index) == [2, 3]
    filled = learn_encoding(frame, "y", missing="impute").encode(frame)
    assert filled.kept.all()
    assert filled.gaps == {"age": 1, "city": 2}
    # the mean of 40, 50, 60
    assert filled.matrix.loc[0, "age"] == 50.0
    assert set(filled.matrix["city=Rome"]) == {0.0, 1.0}


def test_a_cell_that_does_not_fit_is_named(frame):
    encoding = learn_encoding(frame, "y")
    for change, words in [
        ({"city": ["Rome", "Paris", "Rome", "Rome"]}, "'city' has the level 'Paris' in row 2.*'Bonn', 'Oslo', 'Rome'"),
        ({"age": ["1", "2", "old", "4"]}, "'age' must hold finite numbers, and has 'old' in row 3"),
        ({"age": [1.0, np.inf, 2.0, 3.0]}, "'inf' in row 2"),
    ]:
        with pytest.raises(ValueError, match=words):
            encoding.encode(frame.assign(**change))
    with pytest.raises(ValueError, match="the table lacks 'age', which the model was fitted with"):
        encoding.encode(frame.drop(columns="age"))


def test_bad_requests(frame):
    with pytest.raises(ValueError, match=r"no column 'z'; it has 'age'"):
        learn_encoding(frame, "z")
    with pytest.raises(ValueError, match="missing must be one of"):
        learn_encoding(frame, "y", missing="ignore")
    with pytest.raises(ValueError, match="no column besides 'y'"):
        learn_encoding(frame[["same", "y"]], "y")
    with pytest.raises(ValueError, match=r"150 different texts.*--drop name"):
        learn_encoding(pandas.DataFrame({"name": [f"n{i}" for i in range(150)] * 5, "y": range(750)}), "y")
    with pytest.raises(ValueError, match="20 different texts in 20 rows"):
        learn_encoding(pandas.DataFrame({"name": [f"n{i}" for i in range(20)], "y": range(20)}), "y")


def test_description(frame):
    told = {column["name"]: column for column in describe_columns(frame.assign(age=[30, 40, None, 60]))}
    assert told["age"]["missing"] == 1
    assert "from 30 to 60" in told["age"]["summary"]
    assert told["city"] == {
        "name": "city",
        "kind": "levels",
        "missing": 0,
        "distinct": 3,
        "summary": "Rome (2), Oslo (1), Bonn (1)",
    }


def test_one_row_teaches_nothing(frame):
    with pytest.raises(ValueError, match="at least two rows to learn from, got 1"):
        learn_encoding(frame.head(1), frame.columns[-1], missing="impute")
