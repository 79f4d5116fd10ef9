"""The rank histogram shows the ranks it was given."""

import numpy as np
import pytest

from latlin import plot
from latlin.diagnostics.calibration import Calibration

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


def test_bars_count_the_ranks():
    from matplotlib.figure import Figure

    ranks = np.column_stack([np.arange(100), np.zeros(100, int)])
    found = Calibration(ranks, 99, ("a", "b"))
    ax = plot.calibration_ranks(found, "b", Figure().subplots(), bins=10)
    assert [bar.get_height() for bar in ax.patches[:10]] == [100.0] + [0.0] * 9
    ax = plot.calibration_ranks(found, 0, Figure().subplots(), bins=10)
    assert [bar.get_height() for bar in ax.patches[:10]] == [10.0] * 10
    assert "a" in ax.get_xlabel()
    with pytest.raises(ValueError, match="parameter must be one of a, b"):
        plot.calibration_ranks(found, "c")
