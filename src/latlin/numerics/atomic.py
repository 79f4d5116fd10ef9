"""Files that are either the old one or the whole new one, never half of it."""

from __future__ import annotations

import os
import re
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from latlin.numerics.options import path_text

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

#: seconds after which an unfinished file is taken for abandoned where there are no locks
ABANDONED = 86400.0


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A fresh path beside `path`, with its endings, that takes its place when the block ends well.

    A new file has the mode that every new file of the user gets; in the place of another it has the mode of that one.
    Unfinished files of processes that were killed are removed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replace_file(f"{folder}/words.txt") as fresh:
    ...         _ = fresh.write_text("all of it")
    ...     print(Path(folder, "words.txt").read_text())
    all of it
    """
    target = check_place(path)
    _remove_abandoned(target)
    fresh = target.with_name(f".part-{uuid.uuid4().hex}-{target.name}")
    kept = _mode(target)
    # a new one: less what the umask takes away; until it is whole, nobody else reads what may be private
    handle = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666 if kept is None else 0o600)
    try:
        _lock(handle)
        yield fresh
        with open(fresh, "rb") as file:
            os.fsync(file.fileno())
        if kept is not None:
            os.chmod(fresh, kept)
        os.replace(fresh, target)
    finally:
        os.close(handle)
        fresh.unlink(missing_ok=True)


def _mode(target: Path) -> int | None:
    """Who may read and write a file; None where there is none."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        return None


def _lock(handle: int) -> bool:
    """Whether this process has the file now; a lock ends with its process."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_abandoned(target: Path) -> None:
    """Remove unfinished files for `target` that no process is writing."""
    name = re.compile(r"\.part-[0-9a-f]{32}-" + re.escape(target.name))
    for path in target.parent.iterdir():
        if name.fullmatch(path.name) and _is_abandoned(path):
            path.unlink(missing_ok=True)


def _is_abandoned(path: Path) -> bool:
    try:
        if fcntl is None:
            return time.time() - path.stat().st_mtime > ABANDONED
        with open(path, "rb") as file:
            return _lock(file.fileno())
    except OSError:  # another process was quicker, or the file is not ours
        return False


def check_place(path: str | os.PathLike[str]) -> Path:
    """The path, if a file can be written there: it is no folder, and in one. Ask before long work."""
    target = Path(path_text("path", path))
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; expected the name of a file to write")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} to write {target.name} into")
    return target


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8, all or nothing."""
    with replace_file(path) as fresh:
        fresh.write_text(text, encoding="utf8")
