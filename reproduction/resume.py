"""Long tables in pieces: every finished run is kept in the folder and not computed again."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import numpy as np

from reproduction.arrays import Array

Item = TypeVar("Item")


def remembered(folder: Path, key: str, compute: Callable[[], dict[str, Array]]) -> dict[str, Array]:
    """The arrays of a run, from `folder/runs/key.npz` if they are there, else computed and written there.

    What a file name cannot hold becomes an underscore.
    """
    path = named(folder, key)
    if path.exists():
        return recalled(path)
    found = compute()
    keep(path, found)
    return found


def is_kept(folder: Path, key: str) -> bool:
    """Whether a run is finished."""
    return named(folder, key).exists()


def named(folder: Path, key: str) -> Path:
    """The file of a run."""
    return folder / "runs" / (re.sub(r"[^\w.-]+", "_", key) + ".npz")


def recalled(path: Path) -> dict[str, Array]:
    """The arrays of a file."""
    with np.load(path, allow_pickle=False) as kept:
        return {name: kept[name] for name in kept.files}


def keep(path: Path, arrays: dict[str, Array]) -> None:
    """Write arrays at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.stem}.part.npz")
    np.savez(part, **arrays)  # type: ignore[arg-type]
    os.replace(part, path)


def each(label: str, items: Iterable[Item]) -> Iterator[Item]:
    """The items, with a progress bar where someone is looking."""
    listed = list(items)
    if not (sys.stderr.isatty() and find_spec("tqdm")):
        yield from listed
        return
    from tqdm import tqdm

    yield from tqdm(listed, desc=label, leave=False)


def data_file(folder: Path, data: str | os.PathLike[str] | None, name: str) -> Path | None:
    """A data file in the folder of your own that was named, or in `folder/data`; None when it is not there."""
    path = (folder / "data" if data is None else Path(data)) / name
    return path if path.exists() else None
