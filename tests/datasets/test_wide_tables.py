"""Tables of very many columns: the same words and numbers as column by column, in seconds."""

import time

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")

from latlin.datasets import encoding  # noqa: E402
from latlin.datasets.encoding import describe_columns, learn_encoding  # noqa: E402

RNG = np.random.default_rng(0)
FRAME = pandas.DataFrame(
    {
        "plain": RNG.standard_normal(9),
        "whole": np.arange(9),
        "same": np.ones(9),
        "holes": [1.0, None, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        "flag": [True, False] * 4 + [True],
        "text": list("aabbccaab"),
        "single": np.float32(RNG.standard_normal(9)),
        "y": RNG.standard_normal(9),
    }
)


def one_by_one(monkeypatch):
    monkeypatch.setattr(encoding, "_plain_numbers", lambda frame, names: ([], np.zeros((len(frame), 0))))


def test_columns_at_once_are_columns_one_by_one(monkeypatch):
    together = describe_columns(FRAME), learn_encoding(FRAME, "y", missing="impute")
    matrix = together[1].encode(FRAME).matrix
    one_by_one(monkeypatch)
    assert describe_columns(FRAME) == together[0]
    alone = learn_encoding(FRAME, "y", missing="impute")
    assert alone.left_out == together[1].left_out == ("same",)
    assert [column.names for column in alone.columns] == [column.names for column in together[1].columns]
    np.testing.assert_allclose(alone.encode(FRAME).matrix, matrix, rtol=1e-12)


def test_infinite_numbers_are_still_named():
    frame = FRAME.assign(plain=[np.inf, *range(8)])
    with pytest.raises(ValueError, match=r"column 'plain' must hold finite numbers, and has 'inf' in row 1"):
        learn_encoding(frame, "y").encode(frame)


def test_a_hundred_thousand_columns():
    values = RNG.standard_normal((6, 100_000))
    frame = pandas.DataFrame(values, columns=[f"c{i}" for i in range(100_000)])
    frame["y"] = values[:, 0]
    started = time.process_time()
    learnt = learn_encoding(frame, "y")
    assert len(describe_columns(frame)) == 100_001
    np.testing.assert_array_equal(learnt.encode(frame).matrix.to_numpy(), values)
    assert time.process_time() - started < 20.0  # column by column it takes a minute and more
