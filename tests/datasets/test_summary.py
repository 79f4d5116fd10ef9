"""Summaries of parts of a table add up to those of the whole, and teach the same as reading it at once."""

import numpy as np
import pytest

from latlin.datasets.summary import MOST_VALUES, merge, summarise

pandas = pytest.importorskip("pandas")
from latlin.datasets.encoding import describe_columns, learn_column  # noqa: E402
from latlin.datasets.target import guess_family, learn_target  # noqa: E402


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    n = 90
    made = pandas.DataFrame(
        {
            "age": rng.normal(50, 10, n),
            "count": rng.integers(0, 3, n),
            "city": rng.choice(["Oslo", "Rome", "Bonn"], n, p=[0.2, 0.5, 0.3]),
            "yes": rng.random(n) < 0.5,
            "same": 1.0,
        }
    )
    made.loc[3, "age"] = np.nan
    made.loc[70, "city"] = None
    return made


def in_parts(frame, *cuts):
    whole = None
    for part in np.split(np.arange(len(frame)), cuts):
        seen = summarise(frame.iloc[part])
        whole = seen if whole is None else merge(whole, seen)
    return whole


@pytest.mark.parametrize("cuts", [(), (30, 60), (3, 4, 89)])
def test_parts_teach_what_the_whole_teaches(frame, cuts):
    for summary, told in zip(in_parts(frame, *cuts), describe_columns(frame), strict=True):
        assert summary.described() == told
        learnt = learn_column(frame[summary.name])
        if hasattr(learnt, "levels") or learnt is None:
            assert summary.column() == learnt
        else:
            assert summary.column().fill == pytest.approx(learnt.fill, rel=1e-13)


def test_a_part_without_values_changes_nothing(frame):
    gone = frame.iloc[:2].assign(age=np.nan)
    summary = (summarise(gone)[0] + summarise(frame.iloc[2:])[0]).column()
    assert summary.fill == pytest.approx(frame["age"].iloc[2:].mean(), rel=1e-13)


@pytest.mark.parametrize(
    "values",
    [
        ["a", "b"] * 20,
        [True, False] * 20,
        list(range(1000)),
        list(range(3)) * 30,
        [*range(2, 999), -5],
        [*range(1000), 0.5],
        list(np.linspace(0, 1, 500)),
    ],
)
def test_the_family_of_a_target_is_that_of_all_rows(values):
    series = pandas.Series(values, name="y")
    summary = in_parts(series.to_frame(), len(values) // 3)[0]
    assert guess_family(summary.series) == guess_family(series)


def test_labels_are_remembered(frame):
    for name in ("city", "yes"):
        summary = next(s for s in in_parts(frame, 40) if s.name == name)
        assert learn_target(summary.series, "logistic") == learn_target(frame[name], "logistic")


def test_names_are_not_levels():
    series = pandas.Series([f"name {i}" for i in range(MOST_VALUES * 4)], name="who")
    summary = in_parts(series.to_frame(), 300)[0]
    assert len(summary.values) == MOST_VALUES
    with pytest.raises(ValueError, match=r"'who'.*--drop who"):
        summary.column()
    assert summary.described()["distinct"] == "more than 100"
