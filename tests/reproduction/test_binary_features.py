"""The eight features: what the document's figures show, in small."""

import numpy as np
import pytest

from latlin.factor import BinaryFactorAnalysis
from reproduction import binary_features
from reproduction.binary_features import images, n_found, run, slow_relevance, sweep_bounds


def test_the_documents_relevances_rise_slowly_and_never_lower_the_bound():
    found = slow_relevance(images(0)[0], 16, 40)
    assert np.diff(found.bound).min() > -1e-6
    assert found.relevance.shape == (40, 16)
    assert found.relevance[-1].max() > 10 * found.relevance[0].max()


def test_sweeps_converge_faster_where_the_noise_is_larger():
    x, _ = images(0)
    fitted = BinaryFactorAnalysis(8, ard=False, n_init=1, random_state=0).fit(x)
    rises = {noise: np.diff(sweep_bounds(x, fitted, noise, 15)) for noise in (1.0, 5.0)}
    assert min(rise.min() for rise in rises.values()) > -1e-9
    needed = {noise: int((rise > 1e-6).sum()) for noise, rise in rises.items()}
    assert needed[5.0] < needed[1.0]
    assert n_found(fitted.components_) == 8


def test_the_entry_writes_its_table_and_figures_and_kept_runs_are_not_computed_again(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    written = run(tmp_path / "new", quick=True)
    assert [path.suffix for path in written] == [".md", ".csv", ".png", ".png", ".png"]
    assert all(path.stat().st_size > 100 for path in written)
    text = written[0].read_text()
    assert "8 of 8 found" in text
    monkeypatch.delattr(binary_features, "BinaryFactorAnalysis")
    assert run(tmp_path / "new", quick=True)[0].read_text() == text
