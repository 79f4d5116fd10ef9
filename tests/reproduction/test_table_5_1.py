"""Table 5.1: runs are finite, read off as they should be, and the page is written from the partitions there are."""

import numpy as np
import pytest
from scipy.stats import laplace, norm, t

from reproduction import table_5_1
from reproduction.page import Measured
from reproduction.robust_reasons import VARIANTS, Runs, log_constant, mean_of, reasons_for, variants_for
from reproduction.robust_regression import Fit, Sizes, clean_part_of, fits, neal, part_of, unit_width_loss

TINY = Sizes(16, 8, 12, 2, (0.2,))


@pytest.mark.parametrize(("likelihood", "engine"), [("Gauss", "auto"), ("Student t", "gkl"), ("Laplace", "ep")])
def test_fits_are_finite(likelihood, engine):
    part = part_of("Neal", 0, TINY, None)
    assert len(part.split.new_y) == len(part.other_y) == 20
    fit = Fit(*fits(part, likelihood, engine, TINY)[0])
    assert np.all(np.isfinite(fit))
    assert fit.converged == 1.0
    assert fit.after_1 <= fit.after_5 <= fit.after_20 <= fit.evidence + 1e-6


def test_an_engine_that_does_not_apply_is_no_number():
    fit = Fit(*fits(part_of("Friedman", 0, TINY, None), "Laplace", "laplace", TINY)[0])
    assert np.isnan(fit.evidence)
    assert fit.converged == 0.0


def test_other_targets_differ_by_the_outliers_alone():
    _, y, clean = neal(0, 400)
    apart = np.abs(y - clean) > 0.0
    assert 0.02 < apart.mean() < 0.08
    part = part_of("Friedman", 0, TINY, None)
    assert np.flatnonzero(part.split.new_y != part.other_y).tolist() == [0, 10]


@pytest.mark.parametrize(("likelihood", "density"), [("Gauss", norm), ("Laplace", laplace), ("Student t", t(3.0))])
def test_the_constant_is_the_density_at_the_mode(likelihood, density):
    np.testing.assert_allclose(log_constant(likelihood, np.array(0.3)), density.logpdf(0.0) - np.log(0.3))


def _runs():
    """Two partitions, two scales; the second scale is chosen in the first partition, the first in the second."""
    table = np.zeros((2, 2, len(Fit._fields)))
    for field, values in {
        "scale": [[0.1, 0.4], [0.1, 0.4]],
        "evidence": [[-1.0, -2.0], [-3.0, -4.0]],
        "validated": [[0.0, 1.0], [1.0, np.nan]],
        "log_probability": [[0.5, 0.2], [0.3, 0.1]],
    }.items():
        table[:, :, Fit._fields.index(field)] = values
    return Runs(table, np.array([2.0, 2.0]), 10, "Laplace")


def test_the_scale_is_chosen_by_validation():
    runs = _runs()
    np.testing.assert_array_equal(runs.chosen("evidence"), [-2.0, -3.0])
    np.testing.assert_array_equal(runs.chosen("scale"), [0.4, 0.1])
    assert mean_of(np.array([1.0, np.nan])) == Measured(1.0, 0.0)


def test_rows_say_what_they_suppose():
    rows = {trial.run: trial for trial in reasons_for("LML", "Boston", "G-KL", _runs(), Measured(0.4, 0.01))}
    assert rows["without N/2"].ours.value == pytest.approx(-7.5)
    # log 1/(2τ) off for every row of the training part
    assert rows["no constants"].ours.value == pytest.approx(-2.5 + 5.0 * np.log(0.8 * 0.2))
    assert rows["density of y"].ours.value == pytest.approx(-2.5 - 10.0 * np.log(2.0))
    by_scale = rows["no constants, scale 0.1"].ours.value
    assert by_scale == pytest.approx(-2.0 + 10.0 * np.log(0.2))
    assert rows["scale 0.1"].against == ""
    assert "TLP" in rows["scale 0.4"].against
    assert rows["scale 0.2, between"].ours.value == pytest.approx(-2.5)


@pytest.mark.parametrize(("quantity", "row", "value"), [("MSE", "in hundredths", 0.0), ("TLP", "scale 0.1", 0.4)])
def test_other_numbers_have_rows_too(quantity, row, value):
    rows = {trial.run: trial for trial in reasons_for(quantity, "Neal", "G-KL", _runs(), Measured(0.4, 0.01))}
    assert rows[row].ours.value == pytest.approx(value)
    assert any(name.startswith("clean test part") for name in rows)


def test_a_row_made_anew_must_have_the_printed_score():
    score = Measured(0.25, 0.01)
    evidence, *_ = variants_for("LML", "Boston", {"one length": _runs()}, score)
    assert evidence.reason == VARIANTS["one length"].reason
    assert evidence.against == ""
    contradicted, *_ = variants_for("LML", "Boston", {"one length": _runs()}, Measured(0.9, 0.01))
    assert "TLP" in contradicted.against
    (itself,) = variants_for("TLP", "Boston", {"one length": _runs()}, Measured(0.9, 0.01))
    assert itself.against == ""


def test_variants_change_what_they_say():
    plain, clean = part_of("Neal", 0, TINY, None), clean_part_of("Neal", 0, TINY, None)
    assert clean.split.unit <= plain.split.unit
    np.testing.assert_array_equal(clean.other_y, clean.split.new_y)
    start = VARIANTS["kernel as it started"].run(plain, "Laplace", "gkl", TINY)
    found = fits(plain, "Laplace", "gkl", TINY)
    assert Fit(*start[0]).evidence == pytest.approx(Fit(*found[0]).after_1, rel=1e-6)
    length = VARIANTS["one length"].run(part_of("Friedman", 0, TINY, None), "Gauss", "auto", TINY)
    assert np.all(np.isfinite(length))
    assert VARIANTS["widths of 1"].concerns("Neal", "Student t", "LVB")
    assert not VARIANTS["widths of 1"].concerns("Neal", "Laplace", "LVB")


def test_local_bounds_of_unit_width_are_below_the_best():
    part = part_of("Neal", 0, TINY, None)
    best, unit = (Fit(*run(part, "Student t", "lvb", TINY)[0]) for run in (fits, VARIANTS["widths of 1"].run))
    assert unit.evidence < best.evidence
    gauss = Fit(*fits(part, "Gauss", "auto", TINY._replace(scales=(1.0,)))[0])
    # ∫ ∏ e^(−r²/2) in place of ∏ N(r|0, 1), and the height of the parabolas
    each = 0.5 * np.log(2.0 * np.pi) + t(3.0).logpdf(0.0) - np.log(0.2) - unit_width_loss(0.2)
    assert unit.evidence == pytest.approx(gauss.evidence + 16.0 * each)
    assert unit.error == pytest.approx(gauss.error)


def test_a_parabola_of_unit_width_touches_the_density():
    r = np.linspace(0.0, 5.0, 2001)
    gaps = t(3.0).logpdf(r / 0.2) - t(3.0).logpdf(0.0) + unit_width_loss(0.2) + 0.5 * r**2
    assert gaps.min() == pytest.approx(0.0, abs=1e-5)


def test_the_page_is_written(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(table_5_1, "SIZES", dict.fromkeys(table_5_1.SIZES, TINY))
    rng = np.random.default_rng(0)

    def drawn(part, likelihood, engine, sizes):
        assert len(part.split.y) == sizes.train
        table = rng.standard_normal((len(sizes.scales), len(Fit._fields)))
        table[:, 0] = sizes.scales
        return table

    monkeypatch.setattr(table_5_1, "PLAIN", table_5_1.PLAIN._replace(run=drawn))
    anew = {row: variant._replace(run=drawn) for row, variant in VARIANTS.items()}
    monkeypatch.setattr(table_5_1, "VARIANTS", anew)
    np.savetxt(tmp_path / "boston_housing.csv.gz", np.random.default_rng(0).random((70, 4)), delimiter=",", header="a")
    quick = table_5_1.run(tmp_path, quick=True, data=tmp_path)[0].read_text(encoding="utf8")
    assert "Boston" in quick
    assert "no concrete_slump.csv.gz" in quick
    pages = table_5_1.run(tmp_path, data=tmp_path, partitions=2)
    assert "over 2 partitions" in pages[0].read_text(encoding="utf8")
    assert {path.name for path in pages} >= {"table_5_1_reasons.csv", "table_5_1_tests.csv"}
