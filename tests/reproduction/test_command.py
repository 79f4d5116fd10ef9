"""`python -m reproduction`: the list has names, titles and sources, "all" runs every entry, mistakes are sentences."""

import subprocess
import sys
from pathlib import Path

import pytest

from reproduction import registry
from reproduction.__main__ import main


def test_the_list_shows_names_titles_and_sources():
    root = Path(registry.__file__).parents[1]
    found = subprocess.run(
        [sys.executable, "-m", "reproduction", "--list"], cwd=root, capture_output=True, encoding="utf8", check=True
    )
    for entry in registry.entries().values():
        line = next(line for line in found.stdout.splitlines() if line.split()[0] == entry.name)
        assert entry.source in line
        assert entry.title in line


def test_all_runs_every_entry(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    two = {name: entry for name, entry in registry.entries().items() if name in ("figure-3.2", "figure-3.4")}
    monkeypatch.setattr(registry, "entries", lambda: two)
    assert main(["all", "--quick", "--out", str(tmp_path), "--data", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.glob("*.md")} == {"figure_3_2.md", "figure_3_4.md"}
    assert capsys.readouterr().out.count("Saved") == 6


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nothing"], "nothing to reproduce by the name 'nothing'"),
        (["figure-2.2", "--out", __file__], "out must be a folder"),
        (["figure-2.2", "--data", "no-such-folder"], "there is no folder no-such-folder"),
    ],
)
def test_mistakes_are_one_sentence(words, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())
