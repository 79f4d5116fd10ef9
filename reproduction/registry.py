"""What can be reproduced: every module of this package that has a `run(folder, quick)`.

Titles and sources are read off the docstrings, without importing anything: the first line of such a module is
"Table 6.1 of Challis (2013): what it shows".
"""

from __future__ import annotations

import ast
import os
import pkgutil
import re
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import NamedTuple

import reproduction

#: author and year
SOURCE = re.compile(r"\b[A-Z][a-z]+ \(\d{4}\)")


class Entry(NamedTuple):
    """One thing to reproduce: its name, its module, what it shows and the document it is from."""

    name: str
    module: str
    title: str
    source: str


def entries() -> dict[str, Entry]:
    """Every entry by its name.

    Examples
    --------
    >>> entries()["table-6.1"].module
    'reproduction.table_6_1'
    """
    found = (_entry(stem) for stem in sorted(info.name for info in pkgutil.iter_modules(reproduction.__path__)))
    return {entry.name: entry for entry in found if entry is not None}


def chosen(name: str) -> list[str]:
    """The names of the entries that are meant: "all", or one by either spelling."""
    return list(entries()) if name == "all" else [_known(name).name]


def run_entry(
    name: str, folder: str | os.PathLike[str], quick: bool = False, data: str | os.PathLike[str] | None = None
) -> list[Path]:
    """Compute an entry into `folder`; the paths of what was written.

    `quick` takes smaller sizes and fewer repeats; `data` is a folder with data sets of your own, for the entries that
    read some.
    """
    run = import_module(_known(name).module).run
    options = {"data": data} if "data" in signature(run).parameters else {}
    return list(run(folder, quick=quick, **options))


def described(stem: str) -> tuple[Entry, str]:
    """The entry of a module, and what its docstring says after the first paragraph."""
    entry, tree = _entry(stem), _tree(stem)
    if entry is None:
        raise ValueError(f"reproduction.{stem} has no run and is no entry")
    return entry, (ast.get_docstring(tree) or "").partition("\n\n")[2]


def _known(name: str) -> Entry:
    known = entries()
    if (plain := name.replace("_", "-")) not in known:
        raise ValueError(f"there is nothing to reproduce by the name {name!r}; there are {', '.join(known)}")
    return known[plain]


def _tree(stem: str) -> ast.Module:
    return ast.parse((Path(reproduction.__path__[0]) / f"{stem}.py").read_text(encoding="utf8"))


def _entry(stem: str) -> Entry | None:
    tree = _tree(stem)
    if not any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
        return None
    text = ast.get_docstring(tree) or stem
    source = SOURCE.search(text)
    title = re.sub(rf" of {SOURCE.pattern}", "", text.split("\n\n")[0].replace("\n", " "))
    return Entry(_name(stem), f"reproduction.{stem}", title.rstrip("."), source[0] if source else "")


def _name(stem: str) -> str:
    """figure_6_4 → figure-6.4"""
    return re.sub(r"(?<=\d)_(?=\d)", ".", stem).replace("_", "-")
