"""The gallery runs."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("plot_*.py"))
NEEDS = {"plot_multiswag_digits": "torch"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem])
    matplotlib.use("Agg")
    shown = []
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: shown.append(path))
    runpy.run_path(str(path), run_name="__main__")
    monkeypatch.undo()
    matplotlib.pyplot.close("all")
    assert shown
