"""Every module that can run is an entry, with a title and a source; names are forgiving, mistakes are told."""

import re
from pathlib import Path

import pytest

import reproduction
from reproduction.registry import entries, run_entry


def test_every_module_with_a_run_is_listed():
    folder = Path(reproduction.__path__[0])
    runnable = {path.stem for path in folder.glob("*.py") if re.search(r"^def run\(", path.read_text("utf8"), re.M)}
    assert {entry.module.rpartition(".")[2] for entry in entries().values()} == runnable
    assert {"figure-6.4", "table-6.1", "mixture-figures"} <= set(entries())


@pytest.mark.parametrize("entry", entries().values(), ids=lambda entry: entry.name)
def test_an_entry_says_what_it_is_and_where_it_is_from(entry):
    assert re.fullmatch(r"(Brownlie|Mancevo|Challis|Lau|Gutteridge) \(20\d\d\)", entry.source)
    assert len(entry.title) > 10
    assert entry.source not in entry.title


def test_an_entry_runs_by_either_spelling(tmp_path):
    pytest.importorskip("matplotlib")
    assert run_entry("figure_7.1", tmp_path, quick=True)[0].exists()


def test_an_unknown_entry_names_the_known(tmp_path):
    with pytest.raises(ValueError, match=r"'nothing'; there are .*table-6\.1"):
        run_entry("nothing", tmp_path)
