"""The checkpoints of a fit that climbs several times: starts, moves, doubts, one file each."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from latlin.numerics.ascent import Checkpoint


@dataclass
class CheckpointFiles:
    """`path.0`, `path.1` … for one climb after the other; the same fit asks for them in the same order.

    Examples
    --------
    >>> files = CheckpointFiles("fit", "m")
    >>> files.following().path, files.following().path
    ('fit.0', 'fit.1')
    >>> CheckpointFiles(None, "m").following() is None
    True
    """

    path: str | os.PathLike[str] | None
    fingerprint: str
    numbers: Iterable[int] = field(default_factory=count)

    def following(self) -> Checkpoint | None:
        """The checkpoint of the next climb."""
        number = next(iter(self.numbers))
        return None if self.path is None else Checkpoint(f"{os.fspath(self.path)}.{number}", self.fingerprint)


def signature(estimator: Any, *sums: Any) -> str:
    """A digest of an estimator's parameters and of what is known of its data.

    Where a climb stops decides where the next one starts: the rules to stop are part of it.
    """
    digest = hashlib.sha256(type(estimator).__name__.encode())
    for name, value in sorted(estimator.get_params().items()):
        if name != "verbose":
            digest.update(f"{name}={value!r}".encode())
    for values in sums:
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def refuse_checkpoint(path: Any) -> None:
    """Fits of rows in memory keep none."""
    if path is not None:
        raise ValueError("checkpoint is for rows in blocks: Dask collections, large memory-mapped arrays, blocks")
