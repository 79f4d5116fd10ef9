"""The reproduction of the mixture experiments, in small."""

import numpy as np
import pytest

from reproduction import mixture_figures


def test_every_figure_has_its_curves():
    figures = {recipe.figure for recipe in mixture_figures.recipes()}
    assert figures == {f"6.{i}" for i in range(1, 8)}


def test_coordinate_ascent_ends_near_the_truth_and_the_table_says_so():
    problem = mixture_figures.make_problem()
    cavi = mixture_figures.fit(problem, mixture_figures.recipes()[0], 15)
    assert len(cavi.trace.bound) == 15
    assert abs(cavi.trace.log_likelihood_error[-1]) < 0.01 * 3400
    assert np.diff(cavi.trace.bound).min() > -1e-6
    assert mixture_figures.table([cavi]).rows[0][:2] == ("6.1", "CAVI")


def test_figures_are_written(tmp_path):
    pytest.importorskip("matplotlib")
    problem = mixture_figures.make_problem()
    curve = mixture_figures.fit(problem, mixture_figures.recipes()[1], 4)
    assert mixture_figures._draw(tmp_path, "6.1", [curve]).stat().st_size > 1000
    assert mixture_figures._animate(tmp_path, problem, 2).stat().st_size > 1000


def test_kept_curves_are_not_computed_again(tmp_path, monkeypatch):
    problem, few = mixture_figures.make_problem(), mixture_figures.recipes()[:2]
    monkeypatch.setattr(mixture_figures, "recipes", lambda: few)
    first = mixture_figures.curves(tmp_path, problem, 3)
    monkeypatch.delattr(mixture_figures, "fit")
    again = mixture_figures.curves(tmp_path, problem, 3)
    assert [run.name for run in again] == ["CAVI", "GD"]
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.trace.log_likelihood_error, other.trace.log_likelihood_error)
