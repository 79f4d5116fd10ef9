"""The design entries: written, resumable, and design beats chance."""

import numpy as np
import pytest

from latlin.engines import LocalBound
from latlin.reproduce import figure_5_2, figure_5_3, figure_5_4, image_design

PLAN = figure_5_2.Plan(dim=32, first=10, last=22, step=6, seeds=2)
METHODS = {
    "LVB": image_design.Method(LocalBound(tol=0.1), True, True),
    "LVB, random rows": image_design.Method(LocalBound(tol=0.1), False, False),
}
TINY = image_design.Plan(8, 10, 5, 30, 10, 2, METHODS)


@pytest.mark.parametrize("kind", ["Laplace", "Student t"])
@pytest.mark.parametrize("label", ["G-KL", "LVB", "MAP, random rows"])
def test_more_measurements_leave_smaller_errors(kind, label):
    errors = np.mean([figure_5_2.errors_of(kind, label, seed, PLAN) for seed in range(3)], axis=0)
    assert errors.shape == (3,)
    assert errors[-1] < errors[0]


def test_the_signals_figure_is_written(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(figure_5_2, "QUICK", PLAN)
    table, _, figure = figure_5_2.run(tmp_path, quick=True)
    assert table.read_text(encoding="utf8").count("| Laplace |") == 5
    assert figure.stat().st_size > 1000


def test_images_are_designed_and_resumed(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(figure_5_3, "QUICK", TINY)
    monkeypatch.setattr(figure_5_4, "QUICK", TINY)
    images, found = image_design.all_runs(tmp_path, TINY, None, "quick")
    assert images.shape == (2, 8, 8)
    designed, random = (np.mean([kept["errors"][-1] for kept in found[label]]) for label in METHODS)
    assert designed < random
    np.testing.assert_array_equal(found["LVB"][0]["shown_counts"], [10, 20, 30])
    assert len(found["LVB"][0]["errors"]) == 5
    files = set((tmp_path / "runs").iterdir())
    assert {path.suffix for path in figure_5_3.run(tmp_path, quick=True)} == {".png", ".md", ".csv"}
    assert {path.suffix for path in figure_5_4.run(tmp_path, quick=True)} == {".png", ".md", ".csv"}
    assert set((tmp_path / "runs").iterdir()) == files


def test_a_run_continues_where_it_was_cut(tmp_path, monkeypatch):
    image, partial = image_design.dead_leaves(0, 8), tmp_path / "partial.npz"
    whole = image_design.measured(image, "LVB", 0, TINY, tmp_path / "whole.npz")
    kept = image_design.keep

    def cut(path, arrays):
        kept(path, arrays)
        if len(arrays["y"]) >= 20:
            raise KeyboardInterrupt

    monkeypatch.setattr(image_design, "keep", cut)
    with pytest.raises(KeyboardInterrupt):
        image_design.measured(image, "LVB", 0, TINY, partial)
    monkeypatch.undo()
    again = image_design.measured(image, "LVB", 0, TINY, partial)
    np.testing.assert_array_equal(again["counts"], whole["counts"])
    np.testing.assert_allclose(again["errors"][:3], whole["errors"][:3], rtol=1e-3)
    assert not partial.exists()


def test_images_of_your_own_are_used(tmp_path):
    grey = np.random.default_rng(0).integers(0, 255, (3, 64, 64)).astype(np.uint8)
    np.savez(tmp_path / "images_64.npz", images=grey)
    images = image_design.load_images(tmp_path / "images_64.npz", TINY)
    assert images.shape == (2, 8, 8)
    assert images[0, 0, 0] == pytest.approx(grey[0, :8, :8].mean() / 127.5 - 1.0)
