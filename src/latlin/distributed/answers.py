"""Answers of a fitted model for rows in blocks: a Dask collection gets a lazy Dask array, other blocks an array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from scipy import sparse

from latlin.distributed.blocks import Block
from latlin.distributed.opening import is_blocked, is_dask, open_blocks

# --- What an estimator remembers of the columns of data that scikit-learn does not validate.


def remember_columns(estimator: Any, X: Any, n_columns: int) -> None:
    """Set `n_features_in_`, and `feature_names_in_` when all columns of X have names that are text.

    Examples
    --------
    >>> class Table:
    ...     columns = ["a", "b"]
    >>> class Model:
    ...     pass
    >>> model = Model()
    >>> remember_columns(model, Table(), 2)
    >>> model.n_features_in_, model.feature_names_in_.tolist()
    (2, ['a', 'b'])
    """
    estimator.n_features_in_ = n_columns
    names = list(getattr(X, "columns", ()))
    if names and all(isinstance(name, str) for name in names):
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


Method = TypeVar("Method", bound=Callable[..., Any])


def rowwise(method: Method) -> Method:
    """A method of X (and of offsets, if it has them) with an answer, or a row of them, for every row of X.

    It may be asked for X in blocks as well; its other options are for rows in memory.
    """

    @wraps(method)
    def ask(self: Any, X: Any, *offset: Any, **options: Any) -> Any:
        if not is_blocked(X):
            return method(self, X, *offset, **options)
        beside = offset[0] if offset else options.pop("offset", None)
        given = sorted(name for name, value in options.items() if value)
        if given:
            raise ValueError(f"{given[0]} is for rows in memory: ask for it block by block")
        answer = Answer(self, method.__name__)
        return _lazily(answer, X, beside) if is_dask(X) else _eagerly(answer, X, beside)

    return cast(Method, ask)


@dataclass(frozen=True)
class Answer:
    """What a fitted estimator says of some rows; the rows it was fitted to do not travel with it."""

    estimator: Any
    method: str

    def __call__(self, X: Any, offset: Any = None) -> Any:
        asked = getattr(self.estimator, self.method)
        rows = X.toarray() if sparse.issparse(X) and not self._takes_sparse else X
        return asked(rows) if offset is None else asked(rows, offset)

    @property
    def _takes_sparse(self) -> bool:
        return bool(self.estimator.__sklearn_tags__().input_tags.sparse)

    def of_columns(self, X: Any, offset: Any) -> Any:
        """With offsets that came as a column, so that they have the axes of X."""
        return self(X, offset[:, 0])

    def of_block(self, block: Block) -> Any:
        return self(block.X if sparse.issparse(block.X) else np.asarray(block.X), block.offset)


def _eagerly(answer: Answer, X: Any, offset: Any) -> Any:
    return np.concatenate(open_blocks(X, offset=offset).each(answer.of_block))


def _lazily(answer: Answer, X: Any, offset: Any) -> Any:
    """A Dask array; nothing is computed yet but the answer to one made-up row, for its kind."""
    if hasattr(X, "columns"):
        if offset is not None:
            raise ValueError("offset is for arrays: give X as a dask.array, or ask block by block")
        return _of_frame(X, answer, np.asarray(answer(X._meta_nonempty.astype(float)))[:0])
    kind = np.asarray(answer(np.zeros((1, X.shape[1]), X.dtype)))[:0]
    rows = X.rechunk({1: -1})
    shape: dict[str, Any] = {"drop_axis": 1} if kind.ndim == 1 else {"chunks": (rows.chunks[0], kind.shape[1:])}
    if offset is None:
        return rows.map_blocks(answer, dtype=kind.dtype, meta=kind, **shape)
    import dask.array as da

    column = da.asarray(offset)[:, None].rechunk((rows.chunks[0], 1))
    return da.map_blocks(answer.of_columns, rows, column, dtype=kind.dtype, meta=kind, **shape)


def _of_frame(X: Any, answer: Answer, empty: Any) -> Any:
    """The partitions stay data frames, with the names of their columns; how many rows they have is not known."""
    import dask
    import dask.array as da

    shape = (np.nan, *empty.shape[1:])
    parts = [da.from_delayed(dask.delayed(answer)(part), shape, meta=empty) for part in X.to_delayed()]
    return da.concatenate(parts, axis=0, allow_unknown_chunksizes=True)
