"""The Gaussian process figure, and runs that are kept."""

import numpy as np
import pytest

from reproduction import figure_5_1
from reproduction.resume import remembered


def test_a_student_t_keeps_to_the_function():
    panels = figure_5_1.compute(*figure_5_1.sample(), np.linspace(0.0, 10.0, 50))
    assert panels["Student t"].error < 0.3 * panels["Gaussian"].error
    assert panels["Student t"].evidence > panels["Gaussian"].evidence


def test_a_finished_run_is_not_computed_again(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"values": np.arange(3.0)}

    first, second = (remembered(tmp_path, "one", compute)["values"] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert len(calls) == 1


def test_the_figure_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    assert {path.suffix for path in figure_5_1.run(tmp_path, quick=True)} == {".png", ".md", ".csv"}
