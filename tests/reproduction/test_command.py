"""`latlin reproduce`: the list has titles and sources, and "all" runs every entry."""

import pytest

pytest.importorskip("typer")
pytest.importorskip("matplotlib")

from typer.testing import CliRunner

from latlin.cli.app import app
from reproduction import registry


def run(*words):
    return CliRunner().invoke(app, ["reproduce", *words], env={"COLUMNS": "200"})


def test_the_list_shows_names_titles_and_sources():
    found = run("--list")
    assert found.exit_code == 0
    for entry in registry.entries().values():
        assert entry.name in found.output
        assert entry.source in found.output


def test_all_runs_every_entry(tmp_path, monkeypatch):
    two = {name: entry for name, entry in registry.entries().items() if name in ("figure-3.2", "figure-3.4")}
    monkeypatch.setattr(registry, "entries", lambda: two)
    found = run("all", "--quick", "--out", str(tmp_path), "--data", str(tmp_path))
    assert found.exit_code == 0, found.output
    assert {path.name for path in tmp_path.glob("*.md")} == {"figure_3_2.md", "figure_3_4.md"}
    assert found.output.count("Saved") == 6
