"""The command `python -m reproduction`: a list of what there is, or the pages, tables and figures of an entry."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from reproduction.registry import chosen, entries, run_entry


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; 0 when all went well, 1 after a sentence on standard error."""
    parser = argparse.ArgumentParser(prog="python -m reproduction", description=__doc__)
    parser.add_argument("entry", nargs="?", help="what to compute, for example table-5.3, or all")
    parser.add_argument("--list", action="store_true", help="names, titles and sources of all entries")
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer repeats")
    parser.add_argument("--out", type=Path, default=Path("latlin-reproduction"), help="folder for pages and figures")
    parser.add_argument("--data", type=Path, help="folder with data sets of your own")
    given = parser.parse_args(words)
    if given.list or given.entry is None:
        print(listed())
        return 0
    try:
        compute(given.entry, given.out, given.quick, given.data)
    except (ValueError, ImportError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


def listed() -> str:
    """One line per entry."""
    every = entries().values()
    width = max(len(entry.name) for entry in every)
    return "\n".join(f"{entry.name:{width}}  {entry.source:17}  {entry.title}" for entry in every)


def compute(name: str, out: Path, quick: bool, data: Path | None) -> None:
    """Write the pages of one entry, or of all."""
    names = chosen(name)
    if out.exists() and not out.is_dir():
        raise ValueError(f"out must be a folder, got the file {out}")
    if data is not None and not data.is_dir():
        raise ValueError(f"data must be a folder with data sets, and there is no folder {data}")
    for each in names:
        for path in run_entry(each, out, quick, data):
            print(f"Saved {path}")


if __name__ == "__main__":
    sys.exit(main())
