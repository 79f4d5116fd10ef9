"""Labels of rows and their places among levels."""

import numpy as np
import pytest

from latlin.additive import AdditiveModel
from latlin.additive.frame import codes_of, levels_of


@pytest.mark.parametrize(
    "values",
    [
        np.array([7, 5, 7, 9, 5]),
        np.arange(-128, 128).astype(np.int8),  # narrow, but beyond the range of its own differences
        np.array([0, 10**15, -4, 0]),  # wide
        np.array([3, 1, 3], dtype=np.uint8),
        np.array([2.5, -1.0, 2.5]),
        np.array(["b", "a", "b"]),
    ],
    ids=["narrow", "int8", "wide", "unsigned", "numbers", "texts"],
)
def test_levels_are_sorted_and_codes_find_them(values):
    levels = levels_of(values, "column 'g'")
    np.testing.assert_array_equal(levels, np.unique(values))
    assert levels.dtype == values.dtype
    codes = codes_of(values, levels, "column 'g'")
    np.testing.assert_array_equal(levels[codes], values)
    # without its first and last level a column has labels that are not known
    known = levels[1:-1] if len(levels) > 2 else levels[1:]
    codes = codes_of(values, known, "column 'g'")
    np.testing.assert_array_equal(codes >= 0, np.isin(values, known))
    np.testing.assert_array_equal(known[codes[codes >= 0]], values[codes >= 0])


@pytest.mark.parametrize("kind", [dict, "pandas"])
def test_all_names_that_a_table_does_not_have_are_said_at_once(kind):
    columns = {"month": np.arange(6.0), "outcome": np.arange(6.0), "ward": list("aabbcc")}
    frame = columns if kind is dict else pytest.importorskip("pandas").DataFrame(columns)
    words = r"no column 'outcme' \(did you mean 'outcome'\?\) and no column 'moth' \(did you mean 'month'\?\) and no "
    words += r"column 'zone'; it has 'month', 'outcome', 'ward'"
    with pytest.raises(ValueError, match=words):
        AdditiveModel("outcme ~ moth + s(month, by=zone) + (1 | ward)").fit(frame)
