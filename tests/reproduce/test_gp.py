"""The Gaussian process entries: written, resumable, and of the source's shape."""

import numpy as np
import pytest

from latlin.reproduce import figure_5_1, table_5_1
from latlin.reproduce.resume import remembered

TINY = table_5_1.Sizes(16, 8, 12, 2, (0.2,))


def test_a_student_t_keeps_to_the_function():
    panels = figure_5_1.compute(*figure_5_1.sample(), np.linspace(0.0, 10.0, 50))
    assert panels["Student t"].error < 0.3 * panels["Gaussian"].error
    assert panels["Student t"].evidence > panels["Gaussian"].evidence


@pytest.mark.parametrize(("likelihood", "engine"), [("Gauss", "auto"), ("Student t", "gkl"), ("Laplace", "ep")])
def test_scores_are_finite(likelihood, engine):
    split = table_5_1.split_of("Neal", 0, TINY, None)
    assert len(split.new_y) == 20
    found = table_5_1.scores(split, likelihood, engine, TINY)
    assert np.all(np.isfinite(found))
    assert found.converged == 1.0


def test_an_engine_that_does_not_apply_is_no_number():
    found = table_5_1.scores(table_5_1.split_of("Friedman", 0, TINY, None), "Laplace", "laplace", TINY)
    assert np.isnan(found.evidence)


def test_a_finished_run_is_not_computed_again(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"values": np.arange(3.0)}

    first, second = (remembered(tmp_path, "one", compute)["values"] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert len(calls) == 1


def test_figure_and_table_are_written(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    assert {path.suffix for path in figure_5_1.run(tmp_path, quick=True)} == {".png", ".md", ".csv"}
    monkeypatch.setattr(table_5_1, "METHODS", table_5_1.METHODS[:2])
    table = table_5_1.run(tmp_path, quick=True)[0]
    assert "Student t" in table.read_text(encoding="utf8")
    np.savetxt(tmp_path / "boston_housing.csv.gz", np.random.default_rng(0).random((70, 4)), delimiter=",", header="a")
    monkeypatch.setattr(table_5_1, "METHODS", table_5_1.METHODS[:1])
    assert "Boston" in table_5_1.run(tmp_path, quick=True, data=tmp_path)[0].read_text(encoding="utf8")
