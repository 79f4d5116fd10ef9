"""The checkpoints of a fit that climbs several times: starts, moves, doubts, one file each."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from scipy import sparse

from latlin.distributed.blocks import Block, Blocks
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


def signature(estimator: Any, *known: Any) -> str:
    """A digest of an estimator's parameters and of what is known of its data.

    Where a climb stops decides where the next one starts: the rules to stop are part of it.
    """
    digest = hashlib.sha256(type(estimator).__name__.encode())
    for name, value in sorted(estimator.get_params().items()):
        if name != "verbose":
            digest.update(f"{name}={value!r}".encode())
    for values in known:
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def digest_of(blocks: Blocks, path: Any) -> str:
    """A digest of every number of the rows and of what belongs to them, from one pass; none without a checkpoint.

    Sums are not enough to tell data apart: other labels of the same rows have the same moments of the columns.

    Examples
    --------
    >>> from latlin.distributed.blocks import LocalBlocks
    >>> rows = np.ones((4, 2))
    >>> first, second = (LocalBlocks.of(rows, np.array(y)) for y in ([0, 0, 1, 1], [1, 1, 0, 0]))
    >>> digest_of(first, "fit") == digest_of(second, "fit")
    False
    """
    return "" if path is None else hashlib.sha256(b"".join(blocks.each(_digest))).hexdigest()


def _digest(block: Block) -> bytes:
    X = block.X
    rows = (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)
    if hasattr(X, "columns"):
        rows = tuple(X[name] for name in X.columns)
    digest = hashlib.blake2b()
    for values in (*rows, block.y, block.weight, block.offset):
        if values is not None:
            digest.update(_plain(values))
        digest.update(b"|")
    return digest.digest()


def _plain(values: Any) -> Any:
    """Numbers and texts themselves: an array of objects holds only where they are."""
    found = np.asarray(values)
    return np.ascontiguousarray(found if found.dtype.kind in "biufcSU" else found.astype(str))
