"""Arrays on disk: written atomically, read without running anything.

An archive is an `.npz` file whose entry `header` is JSON text. Loading never unpickles, and a write that
fails (a full disk, a lost process) leaves the file that was there before. A sealed one says its kind and format, and a
digest of its contents tells a damaged or edited file.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

HEADER = "header"


def write_archive(path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write arrays and a JSON header to `path`, all or nothing."""
    target = Path(path)
    text = np.frombuffer(json.dumps(header).encode("utf8"), dtype=np.uint8)
    handle, temporary = tempfile.mkstemp(dir=target.parent or ".", prefix=target.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **{HEADER: text}, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays of an archive; a ValueError says what is wrong with a damaged one."""
    if not Path(path).exists():
        raise FileNotFoundError(f"no file {os.fspath(path)}")
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            members = {name: archive[name] for name in archive.files}
        # members that are no arrays belong to whoever added them
        arrays = {name: member for name, member in members.items() if isinstance(member, np.ndarray)}
        header = json.loads(arrays.pop(HEADER).tobytes().decode("utf8"))
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError, TypeError) as error:
        raise ValueError(f"{os.fspath(path)} is not a readable latlin archive: {error}") from error
    if not isinstance(header, dict):
        raise ValueError(f"{os.fspath(path)} is not a readable latlin archive: its header is no JSON object")
    return header, arrays


def write_sealed(
    path: str | os.PathLike[str], kind: str, version: int, header: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Write an archive that says what it holds, in which format, with a digest of all of it."""
    header = {"kind": kind, "format": version, **header}
    write_archive(path, {**header, "digest": digest_of(header, arrays)}, arrays)


def read_sealed(path: str | os.PathLike[str], kind: str, version: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `write_sealed` wrote; another kind, a later format or a digest that does not match is a ValueError."""
    header, arrays = read_archive(path)
    where = os.fspath(path)
    if header.get("kind") != kind:
        raise ValueError(f"{where} holds {header.get('kind')!r:.80}, not {kind!r}")
    if not isinstance(header.get("format"), int) or header["format"] > version:
        raise ValueError(
            f"{where} has format {header.get('format')!r:.20}; this latlin reads up to {version}: upgrade it"
        )
    stored = header.pop("digest", None)
    if stored != digest_of(header, arrays):
        raise ValueError(f"{where} was damaged or changed after it was saved: its digest does not match")
    return header, arrays


def digest_of(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> str:
    """SHA-256 of a header without digest and of arrays, as they are stored."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name}{array.shape}{array.dtype.str}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
