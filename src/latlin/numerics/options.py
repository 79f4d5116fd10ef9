"""What an option may be, decided once for each kind: numbers, whole numbers, names, sequences, files.

Every refusal is a ValueError that says the argument, what was expected and what came.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from latlin.numerics.arrays import LARGEST, SMALLEST, Array, check_summable, check_visible

T = TypeVar("T")
#: what users give in many forms and what is checked where it comes in: rows of X (an array, a sparse matrix, a data
#: frame, a Dask collection, blocks), a table with named columns, one value per row or none, a number or "auto", a file
Rows = Any
Table = Any
PerRow = Any
AutoOrNumbers = ArrayLike
StrPath = str | os.PathLike[str]

#: no count of steps, draws or components is as large
MOST = 2**31
LARGEST_FLOAT = float(np.finfo(float).max)


def check_number(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> float:
    """`value` as a finite float within the limits.

    >>> check_number("tol", 1e-3, least=0.0)
    0.001
    >>> check_number("power", "a", above=0.0, most=1.0)
    Traceback (most recent call last):
        ...
    ValueError: power must be a number above 0 and at most 1, got 'a'
    """
    # integers may be larger than any float
    given: Any = value if isinstance(value, Real) and not isinstance(value, bool) else np.nan
    given = given.item() if isinstance(given, np.generic) else given
    good = bool(-LARGEST_FLOAT <= given <= LARGEST_FLOAT)
    if good:
        good = (
            (least is None or value >= least)
            and (above is None or value > above)
            and (most is None or value <= most)
            and (below is None or value < below)
        )
    if not good:
        limits = (("of at least", least), ("above", above), ("at most", most), ("below", below))
        expected = " and ".join(f"{words} {limit:g}" for words, limit in limits if limit is not None)
        raise ValueError(f"{name} must be a number{' ' * bool(expected)}{expected}, got {value!r:.80}")
    return float(value)


def check_size(name: str, value: object) -> float:
    """`value` as a positive float whose square is one too, of full accuracy."""
    return check_number(name, value, least=SMALLEST, most=LARGEST)


def check_whole(name: str, value: object, least: int = 0, most: int | None = None) -> int:
    """`value` as an int of at least `least` and at most `most`.

    >>> check_whole("n_samples", 3)
    3
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r:.80}")
    if int(value) >= MOST:
        raise ValueError(f"{name} must be an integer below {MOST}, got {value!r:.80}")
    if most is not None and int(value) > most:
        raise ValueError(f"{name} must be at most {most}, got {value}")
    return int(value)


def check_choice(name: str, value: T, known: Iterable[T]) -> T:
    """`value`, if it is one of the names (or None) that are known.

    >>> check_choice("noise", [], ("diagonal", "isotropic"))
    Traceback (most recent call last):
        ...
    ValueError: noise must be one of 'diagonal', 'isotropic', got []
    """
    names = list(known)
    if not (value is None or isinstance(value, str)) or value not in names:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, names))}, got {value!r:.80}")
    return value


def is_name(value: object, name: str) -> bool:
    """Whether an option is this name; an array, which compares place by place, is none."""
    return isinstance(value, str) and value == name


def resolve_choice(name: str, value: Any, known: Mapping[str, Any], what: str, fits: Callable[[Any], bool]) -> Any:
    """What is `known` by the name `value`, or `value` itself where it is `what`, of the user's own.

    >>> resolve_choice("step", "half", {"half": 0.5}, "a callable", callable)
    0.5
    >>> resolve_choice("step", 3, {"half": 0.5}, "a callable", callable)
    Traceback (most recent call last):
        ...
    ValueError: step must be one of 'half', or a callable, got 3
    """
    if isinstance(value, str) and value in known:
        return known[value]
    if isinstance(value, str | type) or not fits(value):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, or {what}, got {value!r:.80}")
    return value


def check_choices(name: str, value: object, known: Iterable[str]) -> tuple[str, ...]:
    """`value`, one name or a sequence of them, as a tuple of names that are known."""
    names = list(known)
    chosen = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Sequence) else ()
    if not chosen or any(not isinstance(each, str) or each not in names for each in chosen):
        raise ValueError(f"{name} must be some of {', '.join(map(repr, names))}, got {value!r:.80}")
    return chosen


def check_pair(name: str, value: Any, what: str) -> tuple[float, float]:
    """`value` as two positive numbers."""
    good = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) and len(value) == 2
    if not good or not all(isinstance(each, Real) and float(each) > 0.0 for each in value):
        raise ValueError(f"{name} must be two positive numbers, {what}, got {value!r:.80}")
    return float(value[0]), float(value[1])


def check_callable(name: str, value: T) -> T:
    """`value`, if it can be called."""
    if not callable(value):
        raise ValueError(f"{name} must be callable, got {value!r:.80}")
    return value


def check_mapping(name: str, value: object) -> dict[str, Any]:
    """`value`, names to whatever belongs to them, as a dict; empty for None."""
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a dict, got {value!r:.80}")
    return dict(value or {})


def check_list(name: str, value: object, what: str) -> list[Any]:
    """`value`, a sequence of something but a text, as a list."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"{name} must be a list of {what}, got {value!r:.80}")
    return list(value)


def check_table_rows(name: str, value: object, keys: Iterable[str]) -> list[Mapping[str, Any]]:
    """`value`, a table with `rows` or the rows themselves: dicts with these keys."""
    rows, known = check_list(name, getattr(value, "rows", value), "rows"), list(keys)
    if not rows or not all(isinstance(row, Mapping) and set(known) <= set(row) for row in rows):
        raise ValueError(f"{name} must hold at least one row with {', '.join(known)}, got {value!r:.80}")
    return rows


def check_jobs(value: Any) -> int | None:
    """`n_jobs` as joblib counts processes: None, or a whole number other than 0."""
    if value is not None:
        good = isinstance(value, Integral) and not isinstance(value, bool) and 0 < abs(int(value)) < 2**15
        if not good:
            raise ValueError(
                f"n_jobs must be None or an integer other than 0, below {2**15} in size, got {value!r:.80}"
            )
    return None if value is None else int(value)


def path_text(name: str, value: object) -> StrPath:
    """`value`, if it is a path at all."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value) or "\0" in str(value):
        raise ValueError(f"{name} must be the path of a file, got {value!r:.80}")
    return value


def file_path(name: str, value: object) -> StrPath:
    """`value`, if it names a file that can be written; asked before long work."""
    value = path_text(name, value)
    folder = os.path.dirname(os.path.abspath(value))
    if not os.path.isdir(folder):
        raise ValueError(f"{name} is {os.fspath(value)!r}, and there is no folder {folder!r}")
    if os.path.isdir(value):
        raise ValueError(f"{name} must be the path of a file, got the folder {os.fspath(value)!r}")
    return value


def float_array(name: str, value: Any) -> np.ndarray:
    """`value` as an array of numbers, which need not be finite."""
    check_visible(name, value)
    try:
        return np.asarray(value, float)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must hold numbers in rows of one length, got {value!r:.80}") from error


def real_array(name: str, value: Any) -> np.ndarray:
    """`value` as an array of finite numbers."""
    array = float_array(name, value)
    if not np.all(np.isfinite(array)):
        bad = int(array.size - np.isfinite(array).sum())
        raise ValueError(f"{name} must be finite, got {bad} NaN or infinite entries of {array.size}")
    return array


# --- Arguments of models as checked arrays: finite, of the right shape, or a sentence that names what came.


class Sealed:
    """What is built once and then only read; arrays such as H are kept as they came, not copied."""

    def _seal(self) -> None:
        self.__dict__["_sealed"] = True

    def __setattr__(self, name: str, value: Any) -> None:
        if "_sealed" in self.__dict__:
            raise AttributeError(f"{type(self).__name__} is immutable: make a new one instead of setting {name}")
        super().__setattr__(name, value)


def finite_array(value: ArrayLike, name: str, max_ndim: int) -> Array:
    check_visible(name, value)
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
    return np.asarray(check_summable(name, array))


def check_matrix(value: Any, name: str, dim: int | None = None) -> Any:
    """A finite, non-empty matrix of `dim` columns: C-ordered array, CSR, or the LinearOperator as it came."""
    if isinstance(value, LinearOperator):
        if 0 in value.shape:
            raise ValueError(f"{name} must be a non-empty matrix, got shape {value.shape}")
        return check_visible(name, value)
    if sparse.issparse(value):
        matrix = sparse.csr_array(check_visible(name, value), dtype=float)
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


def check_projection(value: Any, dim: int | None) -> Any:
    """H as a matrix; a slice selects coordinates."""
    if not isinstance(value, slice):
        return check_matrix(dense_operator(value), "GaussianFactor H")
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


def check_precision(value: Any, name: str) -> sparse.csr_array:
    """A symmetric matrix, sparse; a vector is its diagonal."""
    if not sparse.issparse(value) and np.ndim(value) < 2:
        return sparse.csr_array(sparse.diags_array(np.atleast_1d(finite_array(value, name, max_ndim=1))))
    matrix = sparse.csr_array(check_matrix(value, name))
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
