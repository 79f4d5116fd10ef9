"""What comes with the rows: weights, offsets, exposures and labels; and what is decided about new rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latlin.distributed.opening import is_dask
from latlin.numerics.arrays import Array, convertible, countable, summable, visible


def weights(value: Any, count: int) -> Array | None:
    """Non-negative exponents, one per row, not all zero; None stays None."""
    if value is None:
        return None
    array = np.asarray(visible("sample_weight", value), float)
    if array.ndim == 0:
        array = np.full(count, float(array))
    if array.shape != (count,):
        raise ValueError(f"sample_weight must have shape ({count},), one number per row, got shape {array.shape}")
    good = np.isfinite(array) & (array >= 0.0)
    if not np.all(good):
        raise ValueError(f"sample_weight must be finite and not negative, got {array[~good][0]:g}")
    if not np.any(array > 0.0):
        raise ValueError("sample_weight is zero everywhere: there is nothing to learn from")
    return countable("sample_weight", array)


def offsets(value: Any, count: int, width: int = 1) -> Array | None:
    """One number per row, or one per row and class; None stays None."""
    if value is None:
        return None
    array = np.asarray(visible("offset", value), float)
    if array.ndim == 0:
        array = np.full(count, float(array))
    allowed = {(count,)} | ({(count, width)} if width > 1 else set())
    if array.shape not in allowed:
        raise ValueError(f"offset must have shape {' or '.join(map(str, sorted(allowed)))}, got shape {array.shape}")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"offset must be finite, got {array[~np.isfinite(array)][0]:g}")
    return np.asarray(summable("offset", array))


def exposed(offset: Any, exposure: Any) -> Any:
    """The offsets with the logarithms of the exposures; Dask arrays stay lazy."""
    if exposure is None:
        return offset
    if is_dask(exposure):
        added = np.log(exposure)
        return added if offset is None else offset + added
    array = np.asarray(exposure, float)
    good = np.isfinite(array) & (array > 0.0)
    if not np.all(good):
        where = f" in {int(np.sum(~good))} rows, first in row {int(np.flatnonzero(~good)[0])}" if array.ndim else ""
        raise ValueError(f"exposure must be positive and finite, got {array[~good].flat[0]:g}{where}")
    return np.log(array) if offset is None else np.asarray(offset, float) + np.log(array)


def beside(y: Any, **extra: Any) -> Any:
    """The response of one row with other numbers beside it, shape (n, 1 + k); y as it is where there are none."""
    given = {name: part for name, part in extra.items() if part is not None}
    if not given:
        return y
    if is_dask(y):
        import dask.array as da

        columns = [da.asarray(getattr(part, "values", part)).astype(float) for part in (y, *given.values())]
        return da.stack(columns, axis=1).rechunk({1: len(columns)})
    first = np.asarray(convertible("y", visible("y", y)))
    if first.ndim != 1:
        raise ValueError(f"y must hold one number per row beside {', '.join(given)}, got shape {first.shape}")
    parts = [first]
    for name, part in given.items():
        array = np.asarray(convertible(name, visible(name, part)), float)
        array = np.full(len(first), float(array)) if array.ndim == 0 else array
        if array.shape != first.shape:
            raise ValueError(f"{name} must have shape {first.shape}, one number per row, got shape {array.shape}")
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
    place = order[np.minimum(np.searchsorted(classes, labels, sorter=order), len(classes) - 1)]
    if np.any(classes[place] != labels):
        raise ValueError(f"y has labels that were not in the training data, which had {classes.tolist()}")
    return place


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
        table = np.asarray(loss, float)
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
    return np.asarray(actions)[np.argmin(expected, axis=0)]


def check_actions(actions: Sequence[Any]) -> list[Any]:
    """At least one action."""
    listed = list(actions)
    if not listed:
        raise ValueError("actions must name at least one action, got none")
    return listed
