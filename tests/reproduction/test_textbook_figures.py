"""Figures of chapters 2 to 4: their statements hold, and their pages are written."""

import numpy as np
import pytest
from scipy.stats import norm

from reproduction import (
    figure_2_2,
    figure_2_3,
    figure_2_7,
    figure_3_1,
    figure_3_2,
    figure_3_3,
    figure_3_4,
    figure_4_1,
)
from reproduction.registry import run_entry


@pytest.mark.parametrize("name", ["figure-2.2", "figure-2.3", "figure-2.7", "figure-3.1", "figure-3.2", "figure-3.3"])
def test_every_statement_of_a_quick_page_holds(tmp_path, name):
    _all_agree(tmp_path, name)


@pytest.mark.parametrize("name", ["figure-3.4", "figure-4.1"])
def test_every_statement_of_a_closed_form_page_holds(tmp_path, name):
    _all_agree(tmp_path, name)


def _all_agree(folder, name):
    pytest.importorskip("matplotlib")
    written = run_entry(name, folder, quick=True)
    assert [path.suffix for path in written] == [".md", ".csv", ".png"]
    assert all(path.stat().st_size > 0 for path in written)
    page = written[0].read_text(encoding="utf8")
    assert "agree, 0 differ." in page
    assert "not compared" not in page


def test_the_posterior_of_a_line_is_the_normal_equations():
    line = figure_2_2.lines(3, (5,))[0]
    H = figure_2_2.rows(line.x)
    precision = np.eye(2) + H.T @ H / figure_2_2.NOISE
    np.testing.assert_allclose(line.posterior.mean, np.linalg.solve(precision, H.T @ line.y / figure_2_2.NOISE))
    np.testing.assert_allclose(line.volume, np.linalg.det(precision) ** -0.5)


def test_the_evidence_of_a_polynomial_is_exact():
    x, y = figure_2_3.sample(1, 6)
    found = figure_2_3.fit(x, y, 2)
    H = np.vander(x, 3, increasing=True)
    whole = np.linalg.cholesky(H @ H.T + np.eye(6))
    expected = norm.logpdf(np.linalg.solve(whole, y)).sum() - np.log(np.diagonal(whole)).sum()
    assert found.posterior.log_evidence == pytest.approx(expected)
    assert found.posterior.evidence_kind == "exact"


def test_a_statement_that_fails_is_said():
    falling = [figure_2_2.lines(0)[2], figure_2_2.lines(0)[0]]
    claims = figure_2_2.claims(falling, np.array([[1.0, 2.0], [0.5, 1.0]]))
    assert [claim.agrees for claim in claims] == [True, False, True, False]


def test_modes_are_counted_within_the_grid():
    planes = {name: figure_2_7.compute(figure_2_7.PRIORS[name], 201) for name in ("Laplace", "spike and slab")}
    assert planes["Laplace"].modes == 1
    assert planes["spike and slab"].modes > 1


def test_divergences_of_a_gaussian_from_itself_vanish():
    assert figure_3_2.divergence(figure_3_2.COVARIANCE, figure_3_2.COVARIANCE) == pytest.approx(0.0, abs=1e-12)
    wide = figure_3_1.gauss("a", *figure_3_1.moments("a"))
    worse = figure_3_1.gauss("a", wide.mean, 1.1 * wide.variance)
    assert 0.0 < wide.from_target < worse.from_target


def test_both_modes_have_a_laplace_approximation():
    left, right = figure_3_3.peaks()
    assert left.mean < figure_3_3.MEAN < right.mean
    assert left.variance == pytest.approx(1.0 / left.curvature)


def test_a_bound_that_is_not_below_is_told():
    found = {"Laplace": figure_3_4.bound_of(*figure_3_4.CASES["Laplace"])}
    assert all(claim.agrees for claim in figure_3_4.claims(found))
    wrong = {"Laplace": found["Laplace"]._replace(bound=found["Laplace"].bound + 0.1)}
    assert not figure_3_4.claims(wrong)[0].agrees


def test_the_slope_of_an_expectation_is_that_of_the_closed_form():
    curve = figure_4_1.jump(0.5)
    np.testing.assert_allclose(curve.slope, -2.0 * norm.pdf(figure_4_1.GRID, scale=0.5), atol=1e-12)
