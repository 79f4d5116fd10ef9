"""The eight features: what the document's figures show, in small."""

import numpy as np
import pytest

from latlin.factor import BinaryFactorAnalysis
from reproduction import binary_features
from reproduction import binary_updates as updates
from reproduction.binary_features import by_chance, images, n_found, run, slow_relevance, sweep_bounds


def test_the_documents_relevances_rise_slowly_and_never_lower_the_bound():
    x = images(0)[0]
    found = slow_relevance(x, by_chance(x, 16, 0), 40)
    assert np.diff(found.bound).min() > -1e-6
    assert found.relevance.shape == (40, 16)
    assert found.relevance[-1].max() > 10 * found.relevance[0].max()


def test_the_bound_is_that_of_the_estimator():
    x = images(1, n=60)[0]
    fitted = BinaryFactorAnalysis(3, ard=False, n_init=1, tol=1e-8, random_state=0).fit(x)
    zero = np.zeros(3)
    state = updates.State(
        fitted.transform(x), fitted.components_, np.diag(zero), zero, fitted.probabilities_, fitted.noise_variance_
    )
    assert updates.bound(x, state) == pytest.approx(fitted.lower_bound_, abs=0.5)
    again = updates.with_probability(updates.with_noise(x, state))
    assert again.noise == pytest.approx(state.noise, rel=1e-3)


def test_every_update_raises_the_bound():
    x = images(1, n=60)[0]
    state = updates.with_features(x, updates.begin(x, by_chance(x, 5, 0)))
    steps = [updates.with_noise, lambda _, s: updates.with_probability(s), lambda _, s: updates.with_relevance(s)]
    steps += [updates.with_features, lambda rows, s: updates.swept(rows, s, 2)]
    values = [updates.bound(x, state)]
    for step in 3 * steps:
        state = step(x, state)
        values.append(updates.bound(x, state))
    assert np.diff(values).min() > -1e-8
    assert values[-1] > values[0] + 1.0


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
