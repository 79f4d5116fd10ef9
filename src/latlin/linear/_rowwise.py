"""Predictions for rows in blocks: lazily for Dask collections, piece by piece for large memory maps and blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from latlin.distributed.blocks import Block
from latlin.distributed.opening import is_blocked, is_dask, open_blocks

F = TypeVar("F", bound=Callable[..., Any])


def rowwise(method: F) -> F:
    """A method of (X, offset) that answers one number or one row of numbers a row, for X in blocks as well."""

    @wraps(method)
    def asked(self: Any, X: Any, offset: Any = None, **options: Any) -> Any:
        if not is_blocked(X):
            return method(self, X, offset, **options)
        given = sorted(name for name, value in options.items() if value)
        if given:
            raise ValueError(f"{given[0]} is for rows in memory: ask for it block by block")
        answer = Answer(self, method.__name__)
        return _lazily(answer, X, offset) if is_dask(X) else _eagerly(answer, X, offset)

    return asked  # type: ignore[return-value]


@dataclass(frozen=True)
class Answer:
    """What a fitted estimator says of some rows; the rows it was fitted to do not travel with it."""

    estimator: Any
    method: str

    def __call__(self, X: Any, offset: Any = None) -> Any:
        return getattr(self.estimator, self.method)(X, offset)

    def of_columns(self, X: Any, offset: Any) -> Any:
        """With offsets that came as a column, so that they have the axes of X."""
        return self(X, offset[:, 0])

    def of_block(self, block: Block) -> Any:
        return self(block.X if sparse.issparse(block.X) else np.asarray(block.X), block.offset)


def _eagerly(answer: Answer, X: Any, offset: Any) -> Any:
    return np.concatenate(open_blocks(X, offset=offset).each(answer.of_block))


def _lazily(answer: Answer, X: Any, offset: Any) -> Any:
    """A Dask array; nothing is computed yet but the answer to a row of zeros, for its kind."""
    import dask.array as da

    names = getattr(X, "columns", None)
    if names is not None:
        return _by_partitions(answer, X, offset)
    wanted = X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X
    kind = np.asarray(answer(np.zeros((1, X.shape[1]), X.dtype)))
    shape: dict[str, Any] = {"drop_axis": 1} if kind.ndim == 1 else {"chunks": (wanted.chunks[0], (kind.shape[1],))}
    shape |= {"dtype": kind.dtype, "meta": kind[:0]}
    if offset is None:
        return da.map_blocks(answer, wanted, **shape)
    column = da.asarray(offset)[:, None].rechunk((wanted.chunks[0], 1))
    return da.map_blocks(answer.of_columns, wanted, column, **shape)


def _by_partitions(answer: Answer, X: Any, offset: Any) -> Any:
    import dask
    import dask.array as da

    if offset is not None:
        raise ValueError("offset is for arrays: give X as a dask.array, or ask block by block")
    kind = np.asarray(answer(X._meta_nonempty.astype(float)))
    size = (np.nan, *kind.shape[1:])
    parts = [da.from_delayed(dask.delayed(answer)(part), size, dtype=kind.dtype) for part in X.to_delayed()]
    return da.concatenate(parts, allow_unknown_chunksizes=True)
