"""What is a label and what a number, and when two labels are one."""

from decimal import Decimal

import numpy as np
import pytest

from latlin.additive import AdditiveModel

pandas = pytest.importorskip("pandas")
N = 24
Y = np.random.default_rng(0).standard_normal(N)
NUMBERS = np.resize([1, 2, 3], N)
WORDS = np.resize(["u", "v"], N)


def fitted(formula, frame):
    return AdditiveModel(formula, hyperparameters="fixed").fit(frame)


def test_combinations_whose_texts_agree_are_different_groups():
    first = np.resize(["x:y", "x"], N)
    second = np.where(first == "x:y", "z", "y:z")  # both combinations read x:y:z
    model = fitted("y ~ (1 | a:b)", {"y": Y, "a": first, "b": second})
    plain = fitted("y ~ (1 | a)", {"y": Y, "a": first})
    np.testing.assert_allclose(model.predict({"a": first, "b": second}), plain.predict({"a": first}))


def test_equal_numbers_are_one_label_in_a_combination():
    model = fitted("y ~ (1 | i:g)", {"y": Y, "i": NUMBERS, "g": WORDS})
    as_floats = model.predict({"i": NUMBERS.astype(float), "g": WORDS})
    np.testing.assert_array_equal(as_floats, model.predict({"i": NUMBERS, "g": WORDS}))
    assert np.ptp(as_floats) > 0.1


@pytest.mark.parametrize("missing", [None, float("nan"), pandas.NA])
@pytest.mark.parametrize("formula", ["y ~ (1 | a:i)", "y ~ (1 | a)"])
def test_a_missing_label_is_no_label(missing, formula):
    table = {"y": Y, "a": np.array([*WORDS[:-1], missing], object), "i": NUMBERS}
    with pytest.raises(ValueError, match="column 'a' has 1 missing labels, the first in row 23"):
        fitted(formula, table)
    model = fitted(formula, table | {"a": WORDS})
    with pytest.raises(ValueError, match="column 'a' has 1 missing labels, the first in row 23"):
        model.predict(table)


def test_categories_are_labels_also_where_they_are_numbers():
    frame = pandas.DataFrame({"y": Y, "c": pandas.Categorical(NUMBERS, categories=[3, 1, 2]), "x": Y})
    texts = frame.assign(c=pandas.Categorical(NUMBERS.astype(str), categories=["3", "1", "2"]))
    model, expected = fitted("y ~ c", frame), fitted("y ~ c", texts)
    np.testing.assert_allclose(model.predict(frame), expected.predict(texts))
    # a table to predict may hold the numbers as they are
    np.testing.assert_allclose(model.predict({"c": NUMBERS}), expected.predict(texts))
    by, expected = fitted("y ~ s(x, by=c, k=5)", frame), fitted("y ~ s(x, by=c, k=5)", texts)
    np.testing.assert_allclose(by.predict(frame), expected.predict(texts), atol=1e-10)


def test_decimals_are_numbers():
    rows = [Decimal(k) / 4 for k in range(N)]
    model = fitted("y ~ x", pandas.DataFrame({"y": Y, "x": rows}))
    plain = fitted("y ~ x", {"y": Y, "x": np.arange(N) / 4})
    np.testing.assert_allclose(model.predict({"x": [0.1]}), plain.predict({"x": [0.1]}))
