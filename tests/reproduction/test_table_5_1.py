"""Table 5.1: fits are finite, read off as they should be, and the page is written from the partitions there are."""

import numpy as np
import pytest

from reproduction import table_5_1
from reproduction.page import Measured
from reproduction.robust_regression import Fit, Runs, Sizes, fits, mean_of, neal, part_of

TINY = Sizes(16, 8, 12, 2, (0.2,))


@pytest.mark.parametrize(("likelihood", "engine"), [("Gauss", "auto"), ("Student t", "gkl"), ("Laplace", "ep")])
def test_fits_are_finite(likelihood, engine):
    part = part_of("Neal", 0, TINY, None)
    assert len(part.new_y) == 20
    fit = Fit(*fits(part, likelihood, engine, TINY)[0])
    assert np.all(np.isfinite(fit))
    assert fit.converged == 1.0


def test_a_search_for_the_kernel_raises_the_evidence():
    part = part_of("Neal", 0, TINY, None)
    few, many = (Fit(*fits(part, "Laplace", "gkl", TINY._replace(steps=steps))[0]) for steps in (1, 30))
    assert many.evidence > few.evidence + 0.1
    assert many.scale == few.scale == 0.2


def test_an_engine_that_does_not_apply_is_no_number():
    fit = Fit(*fits(part_of("Friedman", 0, TINY, None), "Laplace", "laplace", TINY)[0])
    assert np.isnan(fit.evidence)
    assert fit.converged == 0.0


def test_a_twentieth_of_neals_targets_have_ten_times_the_noise():
    x, y = neal(0, 4000)
    x = x[:, 0]
    rest = y - (0.3 + 0.4 * x + 0.5 * np.sin(2.7 * x) + 1.1 / (1.0 + x**2))
    # P(|rest| > 0.5) = 0.05 · P(|z| > 0.5)
    assert np.mean(np.abs(rest) > 0.5) == pytest.approx(0.05 * 0.617, abs=0.01)


def test_the_scale_is_chosen_by_validation():
    table = np.zeros((2, 2, len(Fit._fields)))
    for field, values in {
        "scale": [[0.1, 0.4], [0.1, 0.4]],
        "evidence": [[-1.0, -2.0], [-3.0, -4.0]],
        "validated": [[0.0, 1.0], [1.0, np.nan]],
        "error": [[0.5, 0.2], [0.3, 0.1]],
    }.items():
        table[:, :, Fit._fields.index(field)] = values
    runs = Runs(table, np.array([2.0, 3.0]))
    np.testing.assert_array_equal(runs.number("LML"), [-2.0, -3.0])
    np.testing.assert_array_equal(runs.chosen("scale"), [0.4, 0.1])
    np.testing.assert_allclose(runs.number("MSE"), [0.2 * 4.0, 0.3 * 9.0])
    assert mean_of(np.array([1.0, np.nan])) == Measured(1.0, 0.0)


def test_the_page_is_written(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(table_5_1, "SIZES", dict.fromkeys(table_5_1.SIZES, TINY))
    rng = np.random.default_rng(0)

    def drawn(part, likelihood, engine, sizes):
        assert len(part.y) == sizes.train
        table = rng.standard_normal((len(sizes.scales), len(Fit._fields)))
        table[:, 0] = sizes.scales
        return table

    monkeypatch.setattr(table_5_1, "fits", drawn)
    np.savetxt(tmp_path / "boston_housing.csv.gz", np.random.default_rng(0).random((70, 4)), delimiter=",", header="a")
    quick = table_5_1.run(tmp_path, quick=True, data=tmp_path)[0].read_text(encoding="utf8")
    assert "Boston" in quick
    assert "no concrete_slump.csv.gz" in quick
    whole = table_5_1.run(tmp_path, data=tmp_path, partitions=2)[0].read_text(encoding="utf8")
    assert "over 2 partitions" in whole
    assert "the page kept in docs/reproduced" in whole
