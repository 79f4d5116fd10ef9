"""Files that are either the old one or the whole new one, never half of it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A fresh path beside `path`, with its endings, that takes its place when the block ends well.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(f"{folder}/words.txt") as fresh:
    ...         _ = fresh.write_text("all of it")
    ...     print(Path(folder, "words.txt").read_text())
    all of it
    """
    target = check_place(path)
    fresh = target.with_name(f".{uuid.uuid4().hex}.{target.name}")
    try:
        yield fresh
        with open(fresh, "rb") as file:
            os.fsync(file.fileno())
        os.replace(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)


def check_place(path: str | os.PathLike[str]) -> Path:
    """The path, if a file can be written there: it is no folder, and in one. Ask before long work."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; expected the name of a file to write")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} to write {target.name} into")
    return target


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8, all or nothing."""
    with replacing(path) as fresh:
        fresh.write_text(text, encoding="utf8")
