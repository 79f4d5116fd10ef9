"""The affine-independent entries: figures and tables are written, and the numbers have the source's shape."""

import pytest

from reproduction import affine_toys, figure_6_4
from reproduction.registry import run_entry


@pytest.mark.parametrize("number", range(3))
def test_toys_close_the_gap(number):
    found = affine_toys.compute(affine_toys.toys()[number], 801)
    assert found.gaussian.log_evidence < found.affine.log_evidence < found.log_z + 1e-3
    assert found.closed > (0.8, 0.6, 0.8)[number]


def test_skew_gains_most_where_data_and_dimensions_balance(tmp_path):
    found = figure_6_4.compute(tmp_path, (1, 10, 150), seeds=3, held_out=400)
    few, balanced, many = found.bound.mean(axis=0)
    assert min(few, many) >= 0.0
    assert balanced > max(few, many)
    assert found.held_out.shape == (3, 3)


@pytest.mark.parametrize("entry", ["affine-toys", "figure-6.4", "table-6.1"])
def test_entries_write_figures_and_tables(entry, tmp_path):
    pytest.importorskip("matplotlib")
    written = run_entry(entry, tmp_path / "new", quick=True)
    assert {path.suffix for path in written} == {".png", ".md", ".csv"}
    assert all(path.stat().st_size > 100 for path in written)
