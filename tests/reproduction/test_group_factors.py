"""The activity of factors in four views."""

import numpy as np
import pytest

from reproduction import group_factors
from reproduction.group_factors import TRUTH, recover, run


@pytest.mark.parametrize("rank", ["full", 4])
def test_activity_is_recovered(rank):
    found = recover(0, rank)
    assert found.exact
    assert found.n_factors == TRUTH.shape[1]
    assert np.all(found.share[TRUTH] > 0.05)
    assert np.all(found.share[~TRUTH] < 1e-3)


def test_figure_and_table_are_written_and_kept_runs_are_not_computed_again(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    page, _, figure = run(tmp_path, quick=True)
    assert figure.read_bytes()[:4] == b"\x89PNG"
    text = page.read_text()
    assert "| full | 1 of 1 | 6 |" in text
    monkeypatch.delattr(group_factors, "recover")
    assert run(tmp_path, quick=True)[0].read_text() == text
