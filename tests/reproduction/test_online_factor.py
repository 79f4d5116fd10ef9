"""The comparison of online factor analyses: as printed it stops, mended it runs, expanded it meets the batch fit."""

import numpy as np
import pytest

from reproduction import online_factor
from reproduction.online_factor import Mended, Plan, Truth, as_printed

TINY = Plan(6, 2, (60, 400), 200, 1)


def draw(count, seed=0):
    rng = np.random.default_rng(seed)
    return Truth(rng.standard_normal((2, 6)), np.ones(6)).draw(rng, count)


def test_the_printed_algorithm_stops_after_one_row():
    assert as_printed(draw(20), 2) == 1


def test_the_mended_algorithm_keeps_the_moments_of_its_rows():
    rows = draw(50)
    stream = Mended(rows[:10], 2)
    for row in rows[10:]:
        stream.update(row)
    np.testing.assert_allclose(stream.mean, rows.mean(axis=0))
    assert np.all(stream.psi > 0.0)


def test_pages_and_curves(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(online_factor, "QUICK", TINY)
    page, table, picture = online_factor.run(tmp_path, quick=True)
    text = page.read_text(encoding="utf8")
    assert "stops after 1 row" in text
    assert "not explained" not in text
    assert len(table.read_text(encoding="utf8").splitlines()) == 1 + 6 * 2
    assert picture.stat().st_size > 1000
    curves = online_factor.curves(TINY, 0)
    assert curves[online_factor.BATCH][-1, 1] < curves[online_factor.BATCH][0, 1]
    assert abs(curves["online EM"][-1, 0] - curves[online_factor.BATCH][-1, 0]) < 0.2
