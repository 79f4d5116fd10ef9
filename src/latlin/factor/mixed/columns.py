"""Columns of different kinds in and out: what a user's table means, and the matrix of numbers the sites read.

A real column is standardised; a binary one becomes 0 and 1, an ordinal one 0 … L−1 in the order of its levels, counts
stay as they are; a categorical column becomes L binary ones, one against the rest. Missing entries are NaN. Columns
that hold what belongs to others, trials of successes and events of times, stand behind all of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from latlin.factor.mixed.sites import Index, family_of
from latlin.numerics.arrays import Array, check_summable
from latlin.numerics.options import PerRow, Rows
from latlin.numerics.stored import storable
from latlin.potentials.base import Potential
from latlin.potentials.checks import RefusedSites
from latlin.potentials.families import AMOUNTS, COUNTS, FAMILIES, SUCCESSES, TIMES

#: families of noise about η, beside the Gaussian
NOISES = ("student-t", "laplace", "logistic", "cauchy", "huber")
#: the family of a column by its type; an ordinal one also has its number of levels
TYPES = {
    "real": "gaussian",
    "binary": "logit",
    "count": "poisson",
    "ordinal": "ordinal",
    "categorical": "logit",
    **{name: name for name in (*NOISES, "beta", *COUNTS, *AMOUNTS, *TIMES, *SUCCESSES)},
}
#: the kind of a column that belongs to another one
BESIDE = "beside"


#: types of columns that have levels; of numbers with a unit of their own; of counts
LEVELLED, STANDARDISED = ("binary", "ordinal", "categorical"), ("real", *NOISES)
COUNTED = ("count", *COUNTS, *SUCCESSES)


@storable
@dataclass(frozen=True)
class Column:
    """One column of the user's table: its name, kind, levels in order, the units of a real one, and the name of the
    column that holds its trials or events."""

    name: Any
    kind: str
    levels: tuple[Any, ...] = ()
    centre: float = 0.0
    scale: float = 1.0
    beside: Any = None

    @property
    def width(self) -> int:
        """Columns of the encoded matrix that are explained."""
        if self.kind == BESIDE:
            return 0
        return len(self.levels) if self.kind == "categorical" else 1

    def encode(self, values: NDArray[Any], missing: NDArray[np.bool_]) -> Array:
        """The encoded columns, shape (n, width)."""
        if self.kind not in LEVELLED:
            numbers = self._numbers(values, missing)
            return ((numbers - self.centre) / self.scale)[:, None]
        codes, seen = np.full(len(values), np.nan), values[~missing].tolist()
        index = {level: code for code, level in enumerate(self.levels)}
        unknown = set(seen) - set(index)
        if unknown:
            raise ValueError(
                f"column {self.name!r} has the unknown level {unknown.pop()!r}; known: {list(self.levels)}"
            )
        codes[~missing] = list(map(index.__getitem__, seen))
        if self.kind != "categorical":
            return codes[:, None]
        ones = (codes[:, None] == np.arange(len(self.levels))).astype(np.float64)
        ones[missing] = np.nan
        return ones

    def _numbers(self, values: NDArray[Any], missing: NDArray[np.bool_]) -> Array:
        try:
            numbers = np.where(missing, np.nan, values).astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"column {self.name!r} is {self.kind} but holds {values[~missing][0]!r}") from error
        seen = numbers[~missing]
        if not np.all(np.isfinite(seen)):
            raise ValueError(f"column {self.name!r} must be finite or missing, got {seen[~np.isfinite(seen)][0]}")
        self._refuse_impossible(numbers)
        return np.asarray(check_summable(f"column {self.name!r}", numbers))

    def _refuse_impossible(self, seen: Array) -> None:
        """Numbers that the column's family cannot produce; missing ones are NaN."""
        least = -np.inf if self.kind in STANDARDISED else 0.0
        bad, expected = seen < least, "numbers of at least 0"
        if self.kind in COUNTED:
            bad, expected = bad | (seen > np.floor(seen)), "counts 0, 1, 2, …"
        elif self.kind == "beta":
            bad, expected = (seen <= 0.0) | (seen >= 1.0), "shares between 0 and 1, the ends excluded"
        elif self.kind in (*AMOUNTS, *TIMES) and self.kind != "tweedie":
            bad, expected = seen <= 0.0, "positive numbers"
        if np.any(bad):
            where = f"in {np.count_nonzero(bad)} rows, first in row {np.flatnonzero(bad)[0]}"
            raise ValueError(f"column {self.name!r} must hold {expected}, got {seen[bad][0]} {where}")


@storable
@dataclass(frozen=True)
class MixedTable:
    """The columns of a fitted model; `frame` says that the user's table was a data frame."""

    columns: tuple[Column, ...]
    frame: bool

    @property
    def slices(self) -> list[slice]:
        """Where each column stands in the encoded matrix."""
        ends = np.cumsum([column.width for column in self.columns])
        return [slice(int(end) - column.width, int(end)) for column, end in zip(self.columns, ends, strict=True)]

    @property
    def families(self) -> tuple[str, ...]:
        """The family of every encoded column."""
        return tuple(TYPES[column.kind] for column in self.columns for _ in range(column.width))

    @property
    def levels(self) -> Index:
        """Levels of every encoded ordinal column, 0 for others."""
        counts = [[len(c.levels) if c.kind == "ordinal" else 0] * c.width for c in self.columns]
        return np.concatenate(counts).astype(np.int64)

    @property
    def places(self) -> dict[Any, int]:
        """Where the columns that belong to others stand in the encoded matrix, behind those that are explained."""
        names = [column.name for column in self.columns if column.kind == BESIDE]
        return {name: len(self.families) + k for k, name in enumerate(names)}

    @property
    def beside(self) -> tuple[int, ...]:
        """Where the trials or events of every explained column stand, −1 where it has none; empty if none has any."""
        places = self.places
        found = tuple(places.get(column.beside, -1) for column in self.columns for _ in range(column.width))
        return found if places else ()

    def encode(self, X: Rows) -> Array:
        """The encoded matrix of a user's table."""
        raw = read_columns(X)
        if len(raw) != len(self.columns):
            raise ValueError(f"X has {len(raw)} columns, but the model was fitted to {len(self.columns)}")
        parts = [column.encode(*values) for column, (_, *values) in zip(self.columns, raw, strict=True)]
        kinds = [column.kind == BESIDE for column in self.columns]
        parts = [part for last in (False, True) for part, own in zip(parts, kinds, strict=True) if own is last]
        rows = np.ascontiguousarray(np.concatenate(parts, axis=1))
        for column, where in zip(self.columns, self.slices, strict=True):
            if column.beside is not None:
                _check_beside(column, rows[:, where.start], rows[:, self.places[column.beside]])
        return rows

    def log_scale(self, encoded: Array) -> Array:
        """Σ log scale over the observed real entries of every row, to report densities in the user's units."""
        total = np.zeros(len(encoded))
        for column, where in zip(self.columns, self.slices, strict=True):
            if column.kind in STANDARDISED:
                total += np.where(np.isnan(encoded[:, where.start]), 0.0, np.log(column.scale))
        return total

    def refill(self, X: Rows, filled: Sequence[NDArray[Any]]) -> Any:
        """A copy of the user's table with its columns replaced."""
        if self.frame:
            return type(X)(dict(zip(X.columns, filled, strict=True)), index=X.index)
        numeric = all(values.dtype.kind == "f" for values in filled)
        return np.column_stack([values if numeric else values.astype(object) for values in filled])


def _check_beside(column: Column, y: Array, beside: Array) -> None:
    """Refuse trials and events that are missing or do not go with their column."""
    seen = np.flatnonzero(~np.isnan(y))
    if np.any(gap := np.isnan(beside[seen])):
        raise ValueError(
            f"column {column.beside!r} must be known where column {column.name!r} is, and is missing in "
            f"{np.count_nonzero(gap)} rows, first in row {seen[gap][0]}"
        )
    try:
        FAMILIES[TYPES[column.kind]].template.replace(
            **dict(zip(FAMILIES[TYPES[column.kind]].columns, (y[seen], beside[seen]), strict=False))
        )
    except RefusedSites as error:
        raise ValueError(f"columns {column.name!r} and {column.beside!r}: {error.of_rows(seen)}") from None


def read_columns(X: Rows) -> list[tuple[Any, NDArray[Any], NDArray[np.bool_]]]:
    """Name, values and missing entries of every column of a data frame or an array."""
    if is_frame(X):
        return [(name, np.asarray(X[name], dtype=object), np.asarray(X[name].isna())) for name in X.columns]
    array = np.asarray(X)
    absent = _absent(array)
    return [(j, array[:, j], absent[:, j]) for j in range(array.shape[1])]


def is_frame(X: Rows) -> bool:
    """Whether X is a data frame, by what it can do."""
    return hasattr(X, "columns") and hasattr(X, "isna") and hasattr(X, "assign")


def _absent(array: Any) -> NDArray[np.bool_]:
    if array.dtype.kind == "f":
        return np.isnan(array)
    if array.dtype.kind == "O":
        nothing: Any = None
        return (array != array).astype(np.bool_) | np.equal(array, nothing).astype(np.bool_)
    return np.zeros(array.shape, dtype=bool)


def make_table(
    X: Rows, types: Mapping[Any, str] | Sequence[str] | None, beside: Mapping[Any, Any] | None = None
) -> MixedTable:
    """The columns of a table with the kinds a user gave, or those their dtypes suggest."""
    raw = read_columns(X)
    names = [name for name, _, _ in raw]
    given = _given(types, names)
    beside = _given_beside(beside or {}, given, names)
    ordered = _ordered_levels(X) if is_frame(X) else {}
    columns = []
    for name, values, missing in raw:
        if missing.all():
            raise ValueError(f"column {name!r} has no observed entry")
        if name in beside.values():
            columns.append(Column(name, BESIDE))
            continue
        kind = given.get(name) or suggest_kind(values[~missing], name in ordered, X, name)
        columns.append(replace(_column(name, kind, values, missing, ordered.get(name)), beside=beside.get(name)))
    return MixedTable(tuple(columns), is_frame(X))


def _given_beside(beside: Mapping[Any, Any], types: Mapping[Any, str], names: list[Any]) -> Mapping[Any, Any]:
    """Columns of trials and events by the columns that they belong to."""
    for name, other in beside.items():
        for place in (name, other):
            if place not in names:
                raise ValueError(f"beside names the column {place!r}, which X does not have")
        if types.get(name) not in (*SUCCESSES, *TIMES):
            raise ValueError(
                f"beside is for columns of {', '.join((*SUCCESSES, *TIMES))}, got column {name!r} of type "
                f"{types.get(name)!r}"
            )
        if other in types or other in beside:
            raise ValueError(f"column {other!r} belongs to column {name!r}: leave it out of types and of beside")
    for name, kind in types.items():
        if kind in SUCCESSES and name not in beside:
            raise ValueError(f"column {name!r} is {kind}: name the column of its trials, beside={{{name!r}: COLUMN}}")
    return beside


def _given(types: Mapping[Any, str] | Sequence[str] | None, names: list[Any]) -> dict[Any, str]:
    if types is None:
        return {}
    pairs = dict(types) if isinstance(types, Mapping) else dict(zip(names, types, strict=False))
    if not isinstance(types, Mapping) and len(types) != len(names):
        raise ValueError(f"types must have one entry per column ({len(names)}), got {len(types)}")
    for name, kind in pairs.items():
        if name not in names:
            raise ValueError(f"types names the column {name!r}, which X does not have")
        if kind not in TYPES:
            raise ValueError(f"unknown type {kind!r} of column {name!r}; known: {', '.join(TYPES)}")
    return pairs


def _ordered_levels(frame: Any) -> dict[Any, tuple[Any, ...]]:
    """Levels of the ordered categorical columns of a data frame."""
    dtypes = {name: frame[name].dtype for name in frame.columns}
    return {name: tuple(dtype.categories) for name, dtype in dtypes.items() if getattr(dtype, "ordered", False)}


def suggest_kind(seen: NDArray[Any], ordered: bool, X: Rows, name: Any) -> str:
    """ordered categories: ordinal; text and other categories: categorical; two values 0 and 1, or bool: binary;
    whole numbers (of an integer dtype): count; else real."""
    if ordered:
        return "ordinal"
    dtype = X[name].dtype if is_frame(X) else np.asarray(X).dtype
    numeric = all(isinstance(entry, bool | int | float | np.number | np.bool_) for entry in set(seen.tolist()))
    if hasattr(dtype, "categories") or not numeric:
        return "categorical"
    if set(seen.tolist()) <= {0, 1}:
        return "binary"
    whole = getattr(dtype, "kind", "") in "iu" and is_frame(X)
    return "count" if whole and min(seen) >= 0 else "real"


def _column(name: Any, kind: str, values: NDArray[Any], missing: NDArray[np.bool_], levels: Any) -> Column:
    if kind not in LEVELLED:
        numbers = Column(name, kind).encode(values, missing)[~missing, 0]
        spread = float(numbers.std())
        if spread <= 1e-14 * abs(float(numbers.mean())):
            raise ValueError(f"column {name!r} is constant: drop it, there is nothing to explain")
        return Column(name, kind, (), float(numbers.mean()), spread) if kind in STANDARDISED else Column(name, kind)
    found = set(values[~missing].tolist())
    kept = tuple(level for level in levels if level in found) if levels else tuple(sorted(found))
    if len(kept) < 2:
        raise ValueError(f"column {name!r} is constant: drop it, there is nothing to explain")
    if kind == "binary" and len(kept) > 2:
        raise ValueError(f"column {name!r} is binary but has {len(kept)} levels: {list(kept)[:5]}")
    return Column(name, kind, kept)


# --- What a column should be, given the latents: mean and spread, or probabilities of its levels


class Prediction(NamedTuple):
    """Means and standard deviations (n,) of a number, or probabilities (n, levels); the other pair is empty."""

    mean: Array
    std: Array
    probabilities: Array

    def merged(self, column: Column, encoded: Array) -> tuple[NDArray[Any], Array]:
        """The column's values and certainty: as observed where it was, as predicted (this) in the gaps."""
        gap = np.isnan(encoded[:, 0])
        if not column.levels:
            values, std = encoded[:, 0] * column.scale + column.centre, np.zeros(len(gap))
            values[gap], std[gap] = self.mean, self.std
            return values, std
        codes = _codes(column, encoded)
        probabilities = (codes[:, None] == np.arange(len(column.levels))).astype(np.float64)
        probabilities[gap] = self.probabilities
        return labels(column)[probabilities.argmax(axis=1)], probabilities


def labels(column: Column) -> NDArray[Any]:
    """The levels as an array: of floats when they are numbers."""
    numeric = all(isinstance(level, bool | int | float | np.number | np.bool_) for level in column.levels)
    levels = np.empty(len(column.levels), dtype=object)
    levels[:] = column.levels
    return levels.astype(np.float64) if numeric else levels


def _codes(column: Column, encoded: Array) -> Array:
    """0 … L−1 of every row, whatever where it is missing."""
    return encoded.argmax(axis=1).astype(np.float64) if column.kind == "categorical" else encoded[:, 0]


def predict_column(column: Column, m: Array, v: Array, values: dict[str, Any], trials: Array | None) -> Prediction:
    """The predictive distribution of a column whose η are N(m, v), each of shape (n, width).

    Successes among `trials` are not a number where these are missing.
    """
    none = np.zeros(0)
    kind = family_of(TYPES[column.kind]).kind(values)
    if trials is not None:
        known = ~np.isnan(trials)
        counted = _with_trials(column, kind, np.where(known, trials, 1.0)).predictive(m.ravel(), v.ravel())
        mean, sd = (np.where(known, part, np.nan) for part in (counted.mean, np.sqrt(counted.variance)))
        return Prediction(mean, sd, none)
    found: Any = kind.predictive(m.ravel(), v.ravel())
    if not column.levels:
        # noise without a mean, such as Cauchy's, is symmetric about η
        mean = np.where(np.isfinite(found.mean), found.mean, m.ravel())
        sd = np.where(np.isnan(found.variance), np.inf, np.sqrt(found.variance))
        return Prediction(mean * column.scale + column.centre, sd * column.scale, none)
    if column.kind != "categorical":
        return Prediction(none, none, found.probabilities)
    # one against the rest: the levels' probabilities need not add up, so they are made to
    ones = found.probabilities[:, 1].reshape(m.shape)
    return Prediction(none, none, ones / ones.sum(axis=1, keepdims=True))


def _with_trials(column: Column, kind: Potential, trials: PerRow) -> Potential:
    """The potential of new successes; trials that are no counts get a sentence."""
    try:
        return kind.replace(trials=trials)
    except RefusedSites as error:
        raise ValueError(f"trials of column {column.name!r}: {error.of_rows(None)}") from None


def draw_column(
    column: Column, eta: Array, values: dict[str, Any], rng: np.random.Generator, trials: PerRow = None
) -> NDArray[Any]:
    """One draw per row of a column whose η, of shape (n, width), are known, and of successes the trials."""
    if column.kind == "categorical":
        share = np.cumsum(expit(eta) / expit(eta).sum(axis=1, keepdims=True), axis=1)
        return labels(column)[(share[:, :-1] < rng.random((len(eta), 1))).sum(axis=1)]
    kind = family_of(TYPES[column.kind]).kind(values)
    if column.kind in SUCCESSES:
        if trials is None:
            raise ValueError(
                f"draws of column {column.name!r} need trials={{{column.name!r}: a number or one per draw}}"
            )
        kind = _with_trials(column, kind, np.broadcast_to(np.asarray(trials, dtype=float), (len(eta),)))
    drawn = kind.sample(eta[:, 0], rng)
    if not column.levels:
        return drawn * column.scale + column.centre
    return labels(column)[np.maximum(drawn, 0.0).astype(int)]
