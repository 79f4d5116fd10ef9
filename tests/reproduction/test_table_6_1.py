"""Table 6.1: scores, the runs that test a reason, and the page."""

import numpy as np
import pytest

from reproduction import table_6_1
from reproduction.kernel_regression import SETTINGS, Setting, friedman


def test_heavy_tails_gain_in_kernel_regression():
    scores = table_6_1.scores(friedman(0, 15, 40))
    assert np.all(np.isfinite(scores))
    # optimised shapes hold the Gaussian; the fixed ones need not gain
    assert scores.optimised_bound >= max(scores.gaussian_bound, scores.affine_bound) - 1e-3
    assert table_6_1._columns(np.array([scores])).shape == (1, 10)


def test_outliers_lie_where_they_are_said_to():
    plain, clean, both, added = (
        friedman(0, 20, 30, kind) for kind in ("", "no outliers", "outliers in both parts", "outliers added")
    )
    raw = [part.y * part.unit for part in (plain, clean, added)]
    # targets up to a shift of the mean: the first two are outliers
    steps = [np.diff(values)[2:] for values in raw]
    np.testing.assert_allclose(steps[0], steps[1])
    np.testing.assert_allclose(steps[0], steps[2])
    np.testing.assert_array_equal(plain.y, both.y)
    assert np.flatnonzero(plain.new_y != both.new_y).tolist() == [0, 10, 20]


def test_settings_change_the_kernel():
    split = friedman(0, 6, 4)
    plain, half = Setting().rows(split), SETTINGS["δ of ½"][1].rows(split)
    np.testing.assert_allclose(plain - half, 0.5 * np.eye(6))
    np.testing.assert_allclose(SETTINGS["κ of 0.1"][1].new_rows(split), Setting().new_rows(split) ** 2)
    assert np.all(SETTINGS["target among inputs"][1].new_rows(split) < Setting().new_rows(split))


def test_a_folder_of_data_is_used_and_every_row_has_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(table_6_1, "STOPS", (2, 3))
    monkeypatch.setattr("reproduction.kernel_regression.STOPS", (2, 3))
    rows = np.random.default_rng(0).standard_normal((40, 4))
    np.savetxt(tmp_path / "boston_housing.csv.gz", rows, delimiter=",", header="a,b,c,y", comments="")
    found, tests = table_6_1.compute(tmp_path, tmp_path, 2, 8, 6)
    assert set(found) == set(tests) == {"Boston", "Synthetic"}
    assert "outliers added" in tests["Synthetic"]
    assert "outliers added" not in tests["Boston"]
    monkeypatch.setattr(
        table_6_1, "REASONS", table_6_1.REASONS | {"2 steps": "stopped after 2", "3 steps": "stopped after 3"}
    )
    lines = table_6_1.lines_of(found, tests)
    bound = next(line for line in lines if line.what == "bound G-KL, Boston")
    values = {trial.run: trial.ours.value for trial in bound.tests}
    assert values["without D/2"] == pytest.approx(bound.ours.value - 0.5)
    assert values["2 steps"] <= values["3 steps"]
    gain = next(line for line in lines if line.what == "bound gain, Boston")
    assert {trial.run for trial in gain.tests} == {"no δ", "shapes optimised", "2 steps", "3 steps"}
    said = table_6_1.claims(found, lines, False)
    assert sum(claim.agrees is None for claim in said) == 6
    assert all(claim.reason for claim in said if not claim.agrees)
