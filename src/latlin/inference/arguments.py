"""Arguments of models as checked arrays: finite, of the right shape, or a sentence that names what came."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from latlin.numerics.arrays import Array, summable, visible


class Sealed:
    """What is built once and then only read; arrays such as H are kept as they came, not copied."""

    def _seal(self) -> None:
        self.__dict__["_sealed"] = True

    def __setattr__(self, name: str, value: Any) -> None:
        if "_sealed" in self.__dict__:
            raise AttributeError(f"{type(self).__name__} is immutable: make a new one instead of setting {name}")
        super().__setattr__(name, value)


def finite_array(value: ArrayLike, name: str, max_ndim: int) -> Array:
    visible(name, value)
    try:
        raw = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must hold numbers in rows of one length, got {value!r:.80}") from error
    if raw.dtype.kind not in "biufO":
        raise ValueError(f"{name} must hold real numbers, got {raw.dtype}")
    try:
        array = raw.astype(float, copy=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numeric, got {value!r}") from error
    if array.ndim > max_ndim:
        raise ValueError(f"{name} must have at most {max_ndim} dimensions, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} is empty")
    # a finite sum has finite terms
    if not np.isfinite(array.sum()) and not np.all(np.isfinite(array)):
        bad = int(np.size(array) - np.isfinite(array).sum())
        raise ValueError(f"{name} must be finite, got {bad} NaN or infinite entries of {array.size}")
    return np.asarray(summable(name, array))


def checked_matrix(value: Any, name: str, dim: int | None = None) -> Any:
    """A finite, non-empty matrix of `dim` columns: C-ordered array, CSR, or the LinearOperator as it came."""
    if isinstance(value, LinearOperator):
        if 0 in value.shape:
            raise ValueError(f"{name} must be a non-empty matrix, got shape {value.shape}")
        return visible(name, value)
    if sparse.issparse(value):
        matrix = sparse.csr_array(visible(name, value), dtype=float)
        finite_array(matrix.data if matrix.nnz else [0.0], f"{name} data", max_ndim=1)
    else:
        matrix = np.ascontiguousarray(finite_array(value, name, max_ndim=2))
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"{name} must be a non-empty matrix, got shape {matrix.shape}")
    if dim is not None and matrix.shape[1] != dim:
        raise ValueError(f"{name} must have {dim} columns, got shape {matrix.shape}")
    return matrix


def dense_operator(value: Any) -> Any:
    """A LinearOperator as the array of its rows; anything else as it is."""
    return np.asarray(value @ np.eye(value.shape[1]), float) if isinstance(value, LinearOperator) else value


def checked_projection(value: Any, dim: int | None) -> Any:
    """H as a matrix; a slice selects coordinates."""
    if not isinstance(value, slice):
        return checked_matrix(dense_operator(value), "GaussianFactor H")
    if dim is None:
        raise ValueError("GaussianFactor H is a slice, which needs dim, the length of w")
    kept = np.arange(positive_int(dim, "GaussianFactor dim"))[value]
    if not len(kept):
        raise ValueError(f"GaussianFactor H must select some coordinates, got {value} of {dim}")
    if any(end is not None and not -dim <= end <= dim for end in (value.start, value.stop)):
        raise ValueError(f"GaussianFactor H must be a slice of the {dim} coordinates that dim names, got {value}")
    return sparse.csr_array((np.ones(len(kept)), (np.arange(len(kept)), kept)), shape=(len(kept), dim))


def positive_array(value: Any, name: str) -> Array:
    array = finite_array(value, name, max_ndim=1)
    if np.any(array <= 0.0):
        raise ValueError(f"{name} must be positive, got {array.min():g}; one with zeros needs its rank=")
    return array


def checked_precision(value: Any, name: str) -> sparse.csr_array:
    """A symmetric matrix, sparse; a vector is its diagonal."""
    if not sparse.issparse(value) and np.ndim(value) < 2:
        return sparse.csr_array(sparse.diags_array(np.atleast_1d(finite_array(value, name, max_ndim=1))))
    matrix = sparse.csr_array(checked_matrix(value, name))
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must be square, got shape {matrix.shape}")
    difference = abs(matrix - matrix.T)
    asymmetry = float(difference.max()) if difference.nnz else 0.0
    if asymmetry > 1e-8 * float(abs(matrix).max()):
        raise ValueError(f"{name} must be symmetric, got entries that differ by {asymmetry:g}")
    return matrix


def positive_int(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return int(value)


def common_dim(factors: list[Any]) -> int:
    """The length of w that factors and constraints agree on."""
    dims = [(repr(factor), factor.dim) for factor in factors if factor.dim is not None]
    if not dims:
        raise ValueError("the length of w is not known: give GaussianFactor a dim, or a factor an H")
    if len({dim for _, dim in dims}) > 1:
        said = ", ".join(f"{name} has {dim}" for name, dim in dims)
        raise ValueError(f"factors differ in the dimension of w: {said}")
    return int(dims[0][1])
