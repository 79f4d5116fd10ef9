"""The noisy ICA experiment, in small."""

import numpy as np
import pytest

from reproduction import noisy_ica
from reproduction.noisy_ica import amari_error, mixture, run


def test_amari_error_is_one_at_worst_and_ignores_order_and_scale():
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((6, 4))
    assert amari_error(truth, truth[:, ::-1] * [2.0, -1.0, 0.5, 3.0]) == pytest.approx(0.0, abs=1e-12)
    assert amari_error(np.eye(4), np.linalg.inv(np.ones((4, 4)) + 1e-9 * np.eye(4))) == pytest.approx(1.0, abs=1e-3)
    assert np.isnan(amari_error(truth, truth[:, :3]))


def test_noise_is_as_far_below_the_signal_as_asked():
    problem = mixture(0, n=4000, snr=20.0)
    power = (problem.rows**2).mean()
    assert 10 * np.log10(power / problem.noise - 1.0) == pytest.approx(20.0, abs=0.1)


def test_the_entry_writes_its_tables_and_figure_and_kept_runs_are_not_computed_again(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    written = run(tmp_path / "new", quick=True)
    assert [path.suffix for path in written] == [".md", ".csv", ".csv", ".png"]
    assert all(path.stat().st_size > 100 for path in written)
    text = written[0].read_text()
    monkeypatch.delattr(noisy_ica, "NoisyICA")
    assert run(tmp_path / "new", quick=True)[0].read_text() == text
