"""Answers of a fitted model for rows in blocks: a Dask collection gets a lazy Dask array, other blocks an array."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from latlin.distributed.blocks import Block
from latlin.distributed.opening import is_blocked, is_dask, open_blocks

Method = TypeVar("Method", bound=Callable[..., Any])


def answers_by_block(width: str | None = None, dtype: Any = np.float64) -> Callable[[Method], Method]:
    """A method of X whose answer has an entry (or a row) for every row of X may be asked for rows in blocks too.

    Parameters
    ----------
    width : str or None
        The estimator's attribute that says how many columns the answer has; None is one number a row.
    dtype : dtype
        Of the answer.
    """

    def decorate(method: Method) -> Method:
        @wraps(method)
        def ask(self: Any, X: Any, *arguments: Any, **options: Any) -> Any:
            if not is_blocked(X):
                return method(self, X, *arguments, **options)
            if arguments or any(options.values()):
                raise ValueError(f"{method.__name__} of blocks of rows takes X alone")
            columns = None if width is None else int(getattr(self, width))
            return map_rows(X, getattr(self, method.__name__), columns, dtype)

        return cast(Method, ask)

    return decorate


def map_rows(X: Any, function: Callable[[Any], Any], width: int | None, dtype: Any) -> Any:
    """`function` of every block of X, one after the other: lazy for Dask, else in memory.

    Examples
    --------
    >>> from latlin.distributed.blocks import LocalBlocks
    >>> map_rows(LocalBlocks.of(np.ones((5, 2)), rows=2), lambda x: x.sum(axis=1), None, float)
    array([2., 2., 2., 2., 2.])
    """
    if not is_dask(X):
        return np.concatenate(open_blocks(X).each(_answer, function)).astype(dtype, copy=False)
    empty = np.empty((0,) if width is None else (0, width), dtype=dtype)
    if hasattr(X, "to_delayed") and hasattr(X, "columns"):
        return _map_frame(X, function, empty)
    columns = {"drop_axis": [1]} if width is None else {"chunks": (X.chunks[0], (width,))}
    return X.rechunk({1: -1}).map_blocks(function, dtype=dtype, meta=empty, **columns)


def _map_frame(X: Any, function: Callable[[Any], Any], empty: Any) -> Any:
    """The partitions stay data frames, with the names of their columns; how many rows they have is not known."""
    import dask
    import dask.array as da

    shape = (np.nan, *empty.shape[1:])
    parts = [da.from_delayed(dask.delayed(function)(part), shape, meta=empty) for part in X.to_delayed()]
    return da.concatenate(parts, axis=0, allow_unknown_chunksizes=True)


def _answer(block: Block, function: Callable[[Any], Any]) -> Any:
    return function(block.X if not isinstance(block.X, np.memmap) else np.asarray(block.X))
