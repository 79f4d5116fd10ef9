"""The design entries: written, resumable, and design beats chance."""

import numpy as np
import pytest

from latlin.engines import MAP, LocalBound
from reproduction import figure_5_2, figure_5_3, figure_5_4, figure_5_4_small, image_design, resume

PLAN = figure_5_2.Plan(dim=32, first=10, last=22, step=6, seeds=2)
METHODS = {
    "G-KL, 10 per step": image_design.Method(LocalBound(tol=0.1), True, 10),
    "LVB, 10 per step": image_design.Method(LocalBound(tol=0.1), True, 10),
    "MAP, random rows": image_design.Method(MAP(tol=1e-3), False, 10),
    "LVB, random rows": image_design.Method(LocalBound(tol=0.1), False, 10),
    "LVB": image_design.Method(LocalBound(tol=0.1), True, image_design.FINE),
}
TINY = image_design.Plan(8, 10, 30, 10, 2, METHODS)


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
    text = table.read_text(encoding="utf8")
    assert text.count("| Laplace |") == 5
    assert "| Student t | G-KL, stopped early |" in text
    assert text.count("another machine") == 5
    assert figure.stat().st_size > 1000


def test_signals_that_are_there_make_a_page(tmp_path):
    pytest.importorskip("matplotlib")
    for kind, label in figure_5_2.PAIRS:
        for seed in range(3 if label != "LVB" else 2):
            level = 2.0 if label == "MAP, random rows" else 1.0
            found = {"errors": level * np.linspace(1.0, 0.9, 13)}
            resume.remembered(tmp_path, f"figure_5_2_{kind}_{label}_{seed}", lambda f=found: f)
    for kind, label in figure_5_2.SECONDS:
        resume.remembered(tmp_path, f"figure_5_2_seconds_{kind}_{label}", lambda: {"seconds": np.array(0.1)})
    text = figure_5_2.write(tmp_path)[0].read_text(encoding="utf8")
    assert "(2 of 25 signals) | smaller errors | 0.90 at most against 1.80 | yes |" in text
    assert "not tested yet" in text


def test_images_are_designed_and_resumed(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(figure_5_3, "QUICK", TINY)
    monkeypatch.setattr(figure_5_4, "QUICK", TINY)
    pages = {path.suffix for path in figure_5_4.run(tmp_path, quick=True)}
    assert pages == {".png", ".md", ".csv"}
    kept = image_design.shelf(tmp_path, TINY, None, quick=True)
    found = kept.there()
    assert kept.images.shape == (2, 8, 8)
    designed, random = (figure_5_4.at(found[label], 30) for label in ("LVB, 10 per step", "LVB, random rows"))
    assert designed < random
    np.testing.assert_array_equal(found["LVB"][0]["shown_counts"], [10, 22, 30])
    assert len(found["LVB"][0]["errors"]) == 8
    files = set((tmp_path / "runs").iterdir())
    assert {path.suffix for path in figure_5_3.run(tmp_path, quick=True)} == {".png", ".md", ".csv"}
    assert set((tmp_path / "runs").iterdir()) == files
    text = (tmp_path / "figure_5_4.md").read_text(encoding="utf8")
    assert "rows per step" in text
    assert text.count("another machine") == 4
    assert "| LVB | 2 of 2 | 30 | 30 |" in text


def test_pages_are_written_from_the_runs_that_are_there(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(figure_5_4, "FULL", TINY)
    kept = image_design.shelf(tmp_path, TINY, None, quick=False)
    state = {"counts": [10.0, 13.0], "errors": [3.0, 2.0], "seconds": [0.2, 0.1], "shown_counts": [10.0]}
    arrays = {name: np.array(value) for name, value in state.items()} | {"means": np.zeros((1, 64))}
    resume.keep(kept.partial("LVB", 1), arrays)
    text = figure_5_4.write(tmp_path)[0].read_text(encoding="utf8")
    assert "| LVB | 0 of 2 | 13 | 30 |" in text
    assert "| LVB | 10 | 3.000 ± 0.000 | 1 |" in text
    assert "| seconds, first fit, LVB | 5 | 0.1 at 13 rows |" in text


def test_the_small_figure_has_runs_of_its_own(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    methods = {label: METHODS["LVB, 10 per step"] for label in image_design.SMALL.methods}
    plan = image_design.Plan(8, 10, 30, 10, 1, methods)
    monkeypatch.setattr(figure_5_4_small, "SMALL", plan)
    text = figure_5_4_small.run(tmp_path)[0].read_text(encoding="utf8")
    assert text.startswith("# Figure 5.4 (32×32 pixels) of Challis (2013): sixteen images")
    assert "| G-KL | 1 of 1 | 30 | 30 |" in text
    assert "G-KL and LVB at 20 measurements | similar |" in text
    assert not any("full" in path.name for path in (tmp_path / "runs").iterdir())
    assert image_design.SMALL.last / image_design.SMALL.side**2 == image_design.FULL.last / image_design.FULL.side**2


def test_a_run_continues_where_it_was_cut(tmp_path, monkeypatch):
    image, partial, method = image_design.dead_leaves(0, 8), tmp_path / "partial.npz", METHODS["LVB, 10 per step"]
    whole = image_design.measured(image, method, 0, TINY, tmp_path / "whole.npz")
    kept = image_design.keep

    def cut(path, arrays):
        kept(path, arrays)
        if len(arrays["y"]) >= 20:
            raise KeyboardInterrupt

    monkeypatch.setattr(image_design, "keep", cut)
    with pytest.raises(KeyboardInterrupt):
        image_design.measured(image, method, 0, TINY, partial)
    monkeypatch.undo()
    again = image_design.measured(image, method, 0, TINY, partial)
    np.testing.assert_array_equal(again["counts"], whole["counts"])
    np.testing.assert_allclose(again["errors"][:2], whole["errors"][:2], rtol=1e-3)
    assert not partial.exists()


def test_images_of_your_own_are_used(tmp_path):
    grey = np.random.default_rng(0).integers(0, 255, (3, 64, 64)).astype(np.uint8)
    np.savez(tmp_path / "images_64.npz", images=grey)
    images = image_design.load_images(tmp_path / "images_64.npz", TINY)
    assert images.shape == (2, 8, 8)
    assert images[0, 0, 0] == pytest.approx(grey[0, :8, :8].mean() / 127.5 - 1.0)
