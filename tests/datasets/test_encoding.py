"""Encoding: names, indicators, gaps; new rows go the same way, or the cell that does not fit is named."""

import json
from decimal import Decimal

import numpy as np
import pytest

from latlin.datasets import fill_missing, learn_encoding
from latlin.datasets.encoding import describe_columns
from latlin.numerics.stored import Decoder, Encoder

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


@pytest.mark.parametrize("number", [int, float, Decimal])
def test_numbers_in_a_column_of_objects_are_numbers(number):
    plain = pandas.DataFrame({"a": [1.0, 2.0, 3.0, 2.0, 3.0, 1.0], "y": [1.0, 2.0, 3.5, 2.0, 3.0, 0.0]})
    objects = plain.assign(a=pandas.Series([number(k) for k in plain["a"]], dtype=object))
    assert learn_encoding(objects, "y").columns == learn_encoding(plain, "y").columns
    np.testing.assert_array_equal(learn_encoding(objects, "y").encode(objects).matrix, plain[["a"]])
    texts = plain.assign(a=list("uvwvwu"))
    assert learn_encoding(texts, "y").columns != learn_encoding(plain, "y").columns


def test_all_odd_columns_are_named_in_one_message():
    n = 40
    frame = pandas.DataFrame(
        {
            "dose": ["1.5"] * (n - 3) + ["n/a", "?", "n/a"],
            "name": [f"person {i}" for i in range(n)],
            "y": np.arange(n),
        }
    )
    with pytest.raises(ValueError, match="2 things need a decision:\n- column") as told:
        learn_encoding(frame, "y")
    assert "column 'dose': 3 of 40 cells are not numbers: 'n/a' in row 38, '?' in row 39" in str(told.value)
    assert "--missing-values 'n/a,?'" in str(told.value)
    assert "column 'name' holds 40 different texts" in str(told.value)


def test_levels_do_not_change_with_the_type_of_the_column(frame):
    encoding = learn_encoding(frame.assign(ward=[1, 2, 3, 1]), "y", categorical=["ward"], missing="impute")
    again = encoding.encode(frame.assign(ward=[1.0, np.nan, 3.0, 1.0])).matrix
    np.testing.assert_array_equal(again[["ward=2", "ward=3"]], [[0, 0], [0, 0], [0, 1], [0, 0]])


@pytest.mark.parametrize("missing", ["mean", "indicator", "model"])
def test_it_is_stored(frame, missing):
    rows = pandas.concat([frame.assign(when=f"2024-0{k}-11") for k in range(1, 9)], ignore_index=True)
    rows["age"] = rows["age"].where(rows.index % 5 > 0)
    encoding = learn_encoding(rows, "y", missing=missing, dates=["when"])
    encoder = Encoder()
    stored = json.loads(json.dumps(encoder.encode(encoding, "encoding")))
    again = Decoder(encoder.arrays).decode(stored)
    assert again == encoding
    pandas.testing.assert_frame_equal(again.encode(rows).matrix, encoding.encode(rows).matrix)


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


def test_missing_cells_can_be_marked(frame):
    frame = frame.assign(age=[30.0, np.nan, 50.0, 60.0], city=["Rome", None, "Bonn", "Rome"])
    encoding = learn_encoding(frame, "y", missing="indicator")
    assert encoding.names == ["age", "city=Rome", "smokes=yes", "works", "age missing", "city missing"]
    matrix = encoding.encode(frame).matrix
    np.testing.assert_array_equal(matrix.loc[1], [140.0 / 3.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    np.testing.assert_array_equal(matrix[["age missing", "city missing"]].sum(), [1.0, 1.0])


def test_missing_cells_can_be_modelled():
    rng = np.random.default_rng(0)
    size = rng.standard_normal(400)
    frame = pandas.DataFrame({f"x{j}": size + 0.3 * rng.standard_normal(400) for j in range(4)})
    frame["big"] = np.where(size > 0.0, "yes", "no")
    gappy = frame.mask(rng.random(frame.shape) < 0.15)
    hidden = gappy["x1"].isna()
    modelled, mean = (learn_encoding(gappy, None, missing=how).encode(gappy).matrix for how in ("model", "mean"))
    error = [float(((matrix["x1"] - frame["x1"])[hidden] ** 2).mean()) for matrix in (modelled, mean)]
    # the other columns explain all but the noise, 0.09 and a share of the latent's variance
    assert error[0] < 0.2 * error[1]
    labels = gappy["big"].isna()
    right = (modelled["big=yes"] == (frame["big"] == "yes"))[labels].mean()
    assert right > 0.85
    with pytest.raises(ValueError, match="there is only one: use 'mean'"):
        learn_encoding(gappy[["x1"]], None, missing="model")
    with pytest.raises(ValueError, match="needs a model that was fitted with it"):
        learn_encoding(gappy, None, missing="mean").encode(gappy, "model")


def test_a_table_is_filled_and_keeps_its_kinds():
    table = pandas.DataFrame({"age": [30.0, None, 50.0], "city": ["Rome", "Oslo", None], "name": ["a", "b", "c"]})
    filled = fill_missing(table, "indicator")
    assert filled.columns.tolist() == ["age", "city", "name", "age missing", "city missing"]
    assert filled["age"].tolist() == [30.0, 40.0, 50.0]
    assert filled["city"].tolist()[:2] == ["Rome", "Oslo"]
    assert filled["name"].tolist() == ["a", "b", "c"]
    assert len(fill_missing(table, "drop")) == 1
    assert fill_missing(table, "error") is table


def test_numbers_written_for_people_are_read_when_asked(frame):
    priced = frame.assign(price=["$1,200.50", "(30)", "€ 7", None])
    encoding = learn_encoding(priced, "y", numbers=["price"], missing="mean")
    matrix = encoding.encode(priced).matrix
    np.testing.assert_allclose(matrix["price"], [1200.5, -30.0, 7.0, (1200.5 - 30.0 + 7.0) / 3.0])
    with pytest.raises(ValueError, match="'price' must hold finite numbers, and has '1,2' in row 2"):
        encoding.encode(priced.assign(price=["$1", "1,2", "2", "3"]))
    many = pandas.DataFrame({"price": [f"${k},000.00" for k in range(1, 41)], "y": range(40)})
    with pytest.raises(ValueError, match=r"make numbers of them with numbers \(--numbers price\)"):
        learn_encoding(many, "y")
    marked = learn_encoding(many.assign(price=[f"{k},5 €" for k in range(40)]), "y", numbers=["price"], decimal=",")
    assert marked.columns[0].fill == pytest.approx(20.0)


def test_dates_become_features_when_asked():
    days = pandas.date_range("2020-01-01 06:00", periods=800, freq="11h")
    frame = pandas.DataFrame({"when": days, "y": range(800)})
    with pytest.raises(ValueError, match=r"column 'when' holds dates: make features of them with dates \(--dates when"):
        learn_encoding(frame, "y")
    encoding = learn_encoding(frame, "y", dates=["when"])
    matrix = encoding.encode(frame).matrix
    assert encoding.names[:3] == ["when (years)", "when (season, sin)", "when (season, cos)"]
    np.testing.assert_allclose(matrix["when (years)"], np.arange(800) * 11 / 24 / 365.2425)
    np.testing.assert_array_equal(matrix["when=Sunday"], days.day_name() == "Sunday")
    hour = np.arctan2(matrix["when (time of day, sin)"], matrix["when (time of day, cos)"]) * 24 / (2 * np.pi)
    np.testing.assert_allclose(np.mod(hour, 24.0), days.hour, atol=1e-6)
    # January is where it was a year before
    both = matrix[["when (season, sin)", "when (season, cos)"]].to_numpy()
    later = encoding.encode(frame.assign(when=days + pandas.DateOffset(years=4))).matrix
    np.testing.assert_allclose(later[["when (season, sin)", "when (season, cos)"]], both, atol=0.02)


def test_dates_as_texts_are_read_in_the_order_that_their_days_show():
    texts = pandas.DataFrame({"when": ["03/04/2021", "25/04/2021", "01/05/2021"], "y": [1, 2, 3]})
    encoding = learn_encoding(texts, "y", dates=["when"])
    np.testing.assert_allclose(encoding.encode(texts).matrix["when (years)"] * 365.2425, [0, 22, 28])
    with pytest.raises(ValueError, match="can be read with the day or with the month first; write them as YYYY-MM-DD"):
        learn_encoding(texts.assign(when=["03/04/2021", "05/04/2021", "01/05/2021"]), "y", dates=["when"])
    with pytest.raises(ValueError, match="'when' must hold dates, and has 'soon' in row 2"):
        encoding.encode(texts.assign(when=["03/04/2021", "soon", "01/05/2021"]))
    with pytest.raises(ValueError, match="'when' is named in dates and in numbers: choose one"):
        learn_encoding(texts, "y", dates=["when"], numbers=["when"])


def test_numbers_beyond_the_range_of_doubles_are_no_levels():
    for texts in (["1e400", "2", "4"], ["1e400", "2", "x"]):
        frame = pandas.DataFrame({"a": texts, "b": [1.0, 2.0, 3.0], "y": [0, 1, 0]})
        with pytest.raises(ValueError, match="column 'a' must hold finite numbers, and has '1e400' in row 1"):
            learn_encoding(frame, "y")
    # a level may be called so
    named = pandas.DataFrame({"a": ["Inf", "Rome", "Inf"], "b": [1.0, 2.0, 3.0], "y": [0, 1, 0]})
    assert learn_encoding(named, "y").names == ["a=Rome", "b"]
