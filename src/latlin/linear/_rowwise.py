"""Predictions for rows in blocks: lazily for Dask collections, piece by piece for large memory maps and blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from latlin.distributed.answers import map_rows
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
    """A Dask array; nothing is computed yet but the answer to one made-up row, for its kind."""
    frame = hasattr(X, "columns")
    kind = np.asarray(answer(X._meta_nonempty.astype(float) if frame else np.zeros((1, X.shape[1]), X.dtype)))
    width = None if kind.ndim == 1 else kind.shape[1]
    if offset is None:
        return map_rows(X, answer, width, kind.dtype)
    if frame:
        raise ValueError("offset is for arrays: give X as a dask.array, or ask block by block")
    import dask.array as da

    wanted = X.rechunk({1: -1})
    column = da.asarray(offset)[:, None].rechunk((wanted.chunks[0], 1))
    shape: dict[str, Any] = {"drop_axis": 1} if width is None else {"chunks": (wanted.chunks[0], (width,))}
    return da.map_blocks(answer.of_columns, wanted, column, dtype=kind.dtype, meta=kind[:0], **shape)
