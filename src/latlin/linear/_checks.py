"""What comes with the rows: weights, offsets, exposures and labels; and what is decided about new rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.sparsefuncs import mean_variance_axis

from latlin.distributed.blocks import Block, Blocks, slices, tree
from latlin.distributed.opening import is_dask
from latlin.linear import _checks
from latlin.numerics.arrays import Array, convertible, countable, measurable, summable, visible
from latlin.numerics.options import float_array, listed
from latlin.potentials.checks import naming_rows, refuse
from latlin.potentials.survival import INTERVAL


def weights(value: Any, count: int) -> Array | None:
    """Non-negative exponents, one per row, not all zero; None stays None."""
    if value is None:
        return None
    array = float_array("sample_weight", visible("sample_weight", value))
    if array.ndim == 0:
        array = np.full(count, float(array))
    if array.shape != (count,):
        raise ValueError(f"sample_weight must have shape ({count},), one number per row, got shape {array.shape}")
    with naming_rows():
        refuse("sample_weight", array, ~(np.isfinite(array) & (array >= 0.0)), "finite numbers of at least zero")
    if not np.any(array > 0.0):
        raise ValueError("sample_weight is zero everywhere: there is nothing to learn from")
    return countable("sample_weight", array)


def offsets(value: Any, count: int, width: int = 1) -> Array | None:
    """One number per row, or one per row and class; None stays None."""
    if value is None:
        return None
    array = float_array("offset", value)
    if array.ndim == 0:
        array = np.full(count, float(array))
    allowed = {(count,)} | ({(count, width)} if width > 1 else set())
    if array.shape not in allowed:
        raise ValueError(f"offset must have shape {' or '.join(map(str, sorted(allowed)))}, got shape {array.shape}")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"offset must be finite, got {array[~np.isfinite(array)][0]:g}")
    return np.asarray(summable("offset", array))


def exposed(offset: Any, exposure: Any, count: int | None = None) -> Any:
    """The offsets with the logarithms of the exposures of so many rows; Dask arrays stay lazy."""
    if exposure is None:
        return offset
    if is_dask(exposure):
        return np.log(exposure) + (0.0 if offset is None else offset)
    array = float_array("exposure", exposure)
    if array.ndim and count is not None and array.shape != (count,):
        raise ValueError(f"exposure must have shape ({count},), one number per row, got shape {array.shape}")
    with naming_rows():
        refuse("exposure", array, ~(np.isfinite(array) & (array > 0.0)), "positive and finite numbers")
    return np.log(array) if offset is None else float_array("offset", offset) + np.log(array)


def beside(y: Any, **extra: Any) -> Any:
    """The response of one row with other numbers beside it, shape (n, 1 + k); y as it is where there are none."""
    if not (given := {name: part for name, part in extra.items() if part is not None}):
        return y
    if "upper" in given and "event" not in given:
        raise ValueError("upper is the end of intervals, which event marks with 3: give event too")
    if is_dask(y):
        import dask.array as da

        columns = [da.asarray(getattr(part, "values", part)).astype(float) for part in (y, *given.values())]
        if "upper" in given:
            columns[-1] = da.where(columns[1] == INTERVAL, columns[-1], 0.0)
        return da.stack(columns, axis=1).rechunk({1: len(columns)})
    first = np.asarray(convertible("y", visible("y", y)))
    if first.ndim != 1:
        raise ValueError(f"y must hold one number per row beside {', '.join(given)}, got shape {first.shape}")
    parts = [first]
    for name, part in given.items():
        array = float_array(name, convertible(name, visible(name, part)))
        array = np.full(len(first), float(array)) if array.ndim == 0 else array
        if array.shape != first.shape:
            raise ValueError(f"{name} must have shape {first.shape}, one number per row, got shape {array.shape}")
        if name == "upper":  # beside events; where no interval ends it may have no number
            array = np.where(parts[1] == INTERVAL, array, 0.0)
        with naming_rows():
            refuse(name, array, ~np.isfinite(array), "finite numbers")
        parts.append(array)
    return np.column_stack(parts)


def column(offset: Array | None, index: int) -> Array | None:
    """The offsets of one class."""
    return offset[:, index] if offset is not None and offset.ndim == 2 else offset


# --- From labels to the numbers of a likelihood: small objects that can travel to where the labels are.


class LabelCoding(Protocol):
    """Observations of a block as numbers."""

    def __call__(self, y: NDArray[Any]) -> Array: ...


@dataclass(frozen=True)
class Numbers:
    """Numbers as they are."""

    def __call__(self, y: NDArray[Any]) -> Array:
        return np.asarray(y, float)


@dataclass(frozen=True)
class OneLabel:
    """1 for one label, 0 for the others."""

    label: Any

    def __call__(self, y: NDArray[Any]) -> Array:
        return (y == self.label).astype(float)


@dataclass(frozen=True)
class ClassIndex:
    """Place of each label among the classes."""

    classes: NDArray[Any]

    def __call__(self, y: NDArray[Any]) -> Array:
        return class_index(np.asarray(y), self.classes).astype(float)


def class_index(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Place of each label among the classes."""
    order = np.argsort(classes)
    try:
        place = order[np.minimum(np.searchsorted(classes, labels, sorter=order), len(classes) - 1)]
    except TypeError:  # texts among numbers
        place = None
    if place is None or np.any(classes[place] != labels):
        raise ValueError(f"y has labels that were not in the training data, which had {classes.tolist()}")
    return place


def places_of(y: Any, count: int, classes: NDArray[Any]) -> NDArray[np.intp]:
    """Places among the classes of new labels, one for each of so many rows."""
    labels = np.asarray(y)
    if labels.shape != (count,):
        raise ValueError(f"y must have shape ({count},), one label per row, got shape {labels.shape}")
    return class_index(labels, classes)


def at_least_two(classes: NDArray[Any]) -> NDArray[Any]:
    """The classes, if there is something to tell apart."""
    if len(classes) < 2:
        raise ValueError(f"y must hold at least two classes, got one class: {classes.tolist()[0]!r}")
    return classes


# --- Decisions: the action whose loss, averaged over what is not known, is least (Challis (2013), eq. 2.1.8).


Loss = Callable[[Any, NDArray[Any]], ArrayLike] | ArrayLike


def loss_table(actions: Sequence[Any], loss: Loss, outcomes: NDArray[Any]) -> Array:
    """Loss of each action (first axis) at each outcome (any shape)."""
    if callable(loss):
        parts = [np.broadcast_to(np.asarray(loss(action, outcomes), float), outcomes.shape) for action in actions]
        table = np.stack(parts)
    else:
        table = float_array("loss", loss)
        if table.shape != (len(actions), len(outcomes)):
            raise ValueError(
                f"loss must be a function of (action, y) or a table of shape ({len(actions)}, {len(outcomes)}), "
                f"one row per action and one column per class, got shape {table.shape}"
            )
    if np.any(np.isnan(table)):
        raise ValueError("loss gave NaN; it must give a number for every action and outcome")
    return table


def chosen(actions: Sequence[Any], expected: Array) -> NDArray[Any]:
    """The action of least expected loss for each column of (actions, n)."""
    try:
        listed = np.asarray(actions)
    except ValueError:  # vectors of several lengths
        listed = np.empty(len(actions), dtype=object)
        listed[:] = actions
    return listed[np.argmin(expected, axis=0)]


def check_actions(actions: Sequence[Any]) -> list[Any]:
    """At least one action."""
    found = listed("actions", actions, "actions")
    if not found:
        raise ValueError("actions must name at least one action, got none")
    return found


# --- The first pass over blocks of rows: counts, moments of the columns and of the response, and the labels.
#
# Everything is checked here, once, with the sentences of data in memory. Moments of parts are merged by the formula of
# Chan, Golub and LeVeque (1983), in the order of the blocks.


#: rows that stay in the cache
PIECE = 1024


class ColumnMoments(NamedTuple):
    """Total weight, weighted means and weighted sums of squared deviations of some columns."""

    weight: float
    mean: Array
    squares: Array

    @property
    def variance(self) -> Array:
        return self.squares / self.weight

    def merged(self, other: ColumnMoments) -> ColumnMoments:
        weight = self.weight + other.weight
        if weight == 0.0:
            return self
        with np.errstate(invalid="ignore", over="ignore"):
            step = other.mean - self.mean
            mean = self.mean + step * (other.weight / weight)
            squares = self.squares + other.squares + step**2 * (self.weight * other.weight / weight)
        return ColumnMoments(weight, mean, squares)


class LabelWeights(NamedTuple):
    """Distinct labels, sorted, and the weight of each."""

    values: NDArray[Any]
    weight: Array

    def merged(self, other: LabelWeights) -> LabelWeights:
        values, place = np.unique(np.concatenate([self.values, other.values]), return_inverse=True)
        return LabelWeights(values, _counted(place, np.concatenate([self.weight, other.weight]), len(values)))


class FirstPass(NamedTuple):
    """What the first pass finds.

    Parameters
    ----------
    n_rows : int
        Rows of positive weight.
    features : Moments
    response : Moments or None
        Of y and of y less its offset; None for labels.
    labels : Labels or None
    log_exposure : float or None
        log Σ weight exp(offset); None without offsets, one per row.
    width : int
        Offsets per row.
    sparse, single : bool
        Some rows are sparse; all are of single precision.
    """

    n_rows: int
    features: ColumnMoments
    response: ColumnMoments | None
    labels: LabelWeights | None
    log_exposure: float | None
    width: int
    sparse: bool
    single: bool

    def merged(self, other: FirstPass) -> FirstPass:
        return FirstPass(
            self.n_rows + other.n_rows,
            self.features.merged(other.features),
            None if self.response is None or other.response is None else self.response.merged(other.response),
            None if self.labels is None or other.labels is None else self.labels.merged(other.labels),
            None
            if self.log_exposure is None or other.log_exposure is None
            else float(np.logaddexp(self.log_exposure, other.log_exposure)),
            max(self.width, other.width),
            self.sparse or other.sparse,
            self.single and other.single,
        )


def _counted(place: NDArray[np.intp], weight: Array, length: int) -> Array:
    return np.bincount(place, weight, length).astype(float)


def describe(blocks: Blocks, labelled: bool, columns: int = 1) -> FirstPass:
    """The table of all blocks, with so many numbers in the response of one row."""
    table = tree(blocks.each(_described, labelled, columns), FirstPass.merged)
    if table.n_rows == 0:
        raise ValueError("sample_weight is zero everywhere: there is nothing to learn from")
    if table.response is not None:
        measurable("y", np.maximum(np.abs(table.response.mean[:1]), np.sqrt(table.response.variance[:1])))
    return table


def take_column(y: Any, columns: int = 1) -> NDArray[Any]:
    """The response as a vector; a single column is taken as one. Where several numbers belong to a row, as a matrix."""
    if y is None:
        raise ValueError("y is missing: blocks of rows must come with their responses")
    values = np.asarray(y)
    if values.ndim == 2 and 1 < values.shape[1] <= columns:
        return values
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim != 1:
        raise ValueError(f"y should be a 1d array, got an array of shape {values.shape} instead.")
    return values


def _described(block: Block, labelled: bool, columns: int) -> FirstPass:
    count = block.n_rows
    y = take_column(block.y, columns)
    if len(y) != count:
        raise ValueError(f"X and y have different lengths: {count} and {len(y)} rows in a block")
    weight = None if block.weight is None else _weights(np.asarray(block.weight), count)
    share = np.ones(count) if weight is None else weight
    offset = None if block.offset is None else _checks.offsets(block.offset, count, np.shape(block.offset)[-1])
    features = _sparse_moments(block.X, weight) if sparse.issparse(block.X) else _dense_moments(block.X, share)
    _refuse_missing("X", block.X, features.mean)
    single = offset is not None and offset.ndim == 1
    with np.errstate(divide="ignore"):
        exposure = float(np.logaddexp.reduce(offset + np.log(share))) if single and count else None
    return FirstPass(
        int(np.count_nonzero(share)),
        features,
        None if labelled else _response(y, offset, share),
        _labels(y, share) if labelled else None,
        exposure,
        1 if offset is None or offset.ndim == 1 else offset.shape[1],
        sparse.issparse(block.X),
        block.X.dtype == np.float32,
    )


def _weights(weight: Array, count: int) -> Array:
    """Checked; a block may be all zero, not all of them."""
    if weight.shape == (count,) and not weight.any():
        return np.zeros(count)
    checked = _checks.weights(weight, count)
    assert checked is not None
    return checked


def _refuse_missing(name: str, values: Any, mean: Array) -> None:
    """NaN and infinities, which no mean hides; and numbers whose squares cannot be summed."""
    if not np.all(np.isfinite(mean)):
        numbers = values.data if sparse.issparse(values) else np.asarray(values)
        said = "NaN" if np.isnan(numbers).any() else "infinity or a value too large for dtype('float64')"
        raise ValueError(f"Input {name} contains {said}.")
    summable(name, values)


def _dense_moments(X: Any, weight: Array) -> ColumnMoments:
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got an array of shape {X.shape} instead")
    total = ColumnMoments(0.0, np.zeros(X.shape[1]), np.zeros(X.shape[1]))
    for part in slices(X.shape[0], PIECE):
        total = total.merged(_moments(np.asarray(X[part], dtype=float), weight[part]))
    return total


def _moments(rows: Array, weight: Array) -> ColumnMoments:
    total = float(weight.sum())
    if total == 0.0:
        _refuse_missing("X", rows, rows.sum(axis=0))
        return ColumnMoments(0.0, np.zeros(rows.shape[1]), np.zeros(rows.shape[1]))
    with np.errstate(invalid="ignore", over="ignore"):
        # rows of weight zero are checked as well: 0·NaN is NaN
        mean = np.einsum("n,nd->d", weight / total, rows)
        deviation = rows - mean
        return ColumnMoments(total, mean, np.einsum("n,nd,nd->d", weight, deviation, deviation))


def _sparse_moments(X: Any, weight: Array | None) -> ColumnMoments:
    rows = sparse.csr_matrix(X, dtype=float)
    total = float(X.shape[0] if weight is None else weight.sum())
    if not np.all(np.isfinite(rows.data)):
        _refuse_missing("X", rows, np.array([np.nan]))
    if total == 0.0:
        return ColumnMoments(0.0, np.zeros(X.shape[1]), np.zeros(X.shape[1]))
    mean, variance = mean_variance_axis(rows, axis=0, weights=weight)
    return ColumnMoments(total, np.asarray(mean, float), total * np.asarray(variance, float))


def _response(y: NDArray[Any], offset: Array | None, weight: Array) -> ColumnMoments:
    try:
        values = y.astype(float)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"y must be numeric, got {y.dtype}") from error
    _refuse_missing("y", values, np.atleast_1d(values.sum()))
    values = values if values.ndim == 1 else values[:, 0]
    residual = values if offset is None else values - offset
    return _dense_moments(np.column_stack([values, residual]), weight)


def _labels(y: NDArray[Any], weight: Array) -> LabelWeights:
    if y.dtype.kind == "f" and np.isnan(y).any():
        raise ValueError("Input y contains NaN.")
    try:
        values, place = np.unique(y, return_inverse=True)
    except TypeError as error:
        raise ValueError("y has labels that cannot be put in order: missing ones, or numbers among texts") from error
    if len(values):
        check_classification_targets(values)
    counts = _counted(place, weight, len(values))
    return LabelWeights(values[counts > 0.0], counts[counts > 0.0])
