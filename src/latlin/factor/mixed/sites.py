"""The columns of a mixed table as sites: one potential per column, on η = b + fᵀw.

Every expectation, tilted moment, draw and derivative is the potential's own (`latlin.potentials`). Columns of one
family whose parameters are single numbers are evaluated together, cell by cell; others column by column.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable
from latlin.potentials.base import ExpectedLog, Potential
from latlin.potentials.families import FAMILIES, SUCCESSES, Family, Ordered

Index = NDArray[np.int64]


@storable
class ColumnSites(NamedTuple):
    """The columns' parameters: families, loadings (columns × K), intercepts, and what each family has learnt.

    `beside` says where in the encoded matrix the trials or events of each column are, −1 where it has none; it is
    empty where no column has any.
    """

    families: tuple[str, ...]
    loading: Array
    intercept: Array
    parameters: tuple[dict[str, Any], ...]
    beside: tuple[int, ...] = ()

    def check_stored(self) -> None:
        """Refuse columns of unknown families, or without a parameter that theirs has."""
        if unknown := [name for name in self.families if name not in FAMILIES]:
            raise ValueError(f"families must be among {', '.join(FAMILIES)}, got {unknown[0]!r:.80}")
        counts = {len(part) for part in (*self[:4], self.beside or self.families)}
        if len(counts) != 1:
            raise ValueError(f"families, loadings, intercepts and parameters must be of one length, got {counts}")
        for name, values in zip(self.families, self.parameters, strict=True):
            if missing := set(FAMILIES[name].parameters) - set(values):
                raise ValueError(f"a column of the family {name} must have {sorted(missing)}")

    def potential(self, column: int, y: Array) -> Potential:
        """The sites of observations of one column."""
        return family_of(self.families[column]).potential(y, self.parameters[column])

    def observed(self, rows: Array, row: Any, column: Any) -> Array:
        """The numbers of some cells, and as a second column what belongs to them."""
        y, place = rows[row, column], np.asarray(self.beside)[column] if self.beside else np.array(-1)
        return np.column_stack([y, rows[row, place]]) if np.all(place >= 0) else y


class ObservedCells(NamedTuple):
    """Observed cells of some columns: where they stand, and their sites."""

    row: Index
    column: Index
    potential: Potential


class ObservedColumn:
    """What a family asks of the observed entries of a column."""

    def __init__(self, y: Array) -> None:
        self.y = y

    def mean(self) -> float:
        return float(self.y.mean())

    def residual_moments(self) -> tuple[float, float]:
        return float(self.y.mean()), float(self.y.std())

    def log_exposure(self) -> float | None:
        return None

    def class_weights(self, count: int) -> Array:
        return np.bincount(self.y.astype(int), minlength=count).astype(np.float64)


def local_expectation(potential: Potential, m: Array, v: Array) -> ExpectedLog:
    """The best quadratic bound on ⟨ψ⟩ under N(m, v), with its slopes: ξ² = ⟨(η − middle)²⟩ makes it stationary in ξ."""
    if potential.gaussian:
        return potential.expected_log(m, v)
    a, b, c = potential.quadratic_bound(np.sqrt((m - potential.middle) ** 2 + v))
    return ExpectedLog(c - 0.5 * a * (m * m + v) + b * m, b - a * m, -0.5 * a)


def exact_expectation(potential: Potential, m: Array, v: Array) -> ExpectedLog:
    """⟨ψ⟩ itself."""
    return potential.expected_log(m, v)


def family_of(name: str) -> Family:
    """The family of a name; ordered classes are logistic in η."""
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}, got {name!r:.80}")
    return FAMILIES[name].fixed(link="logit") if name == "ordinal" else FAMILIES[name]


def shares(rows: Array, families: tuple[str, ...], beside: tuple[int, ...]) -> Array:
    """The encoded columns that are explained, successes as shares of their trials."""
    found = rows[:, : len(families)].copy()
    for column, place in enumerate(beside):
        if families[column] in SUCCESSES:
            found[:, column] /= rows[:, place]
    return found


def first_sites(
    rows: Array, families: tuple[str, ...], levels: Index, rank: int, beside: tuple[int, ...] = ()
) -> ColumnSites:
    """Columns that depend on no latents, with intercepts and parameters that match their margins."""
    seen = [column[~np.isnan(column)] for column in shares(rows, families, beside).T]
    found = [
        _margin(name, ObservedColumn(y), int(count)) for name, y, count in zip(families, seen, levels, strict=True)
    ]
    intercept = np.array([start for start, _ in found])
    parameters = tuple(values for _, values in found)
    return ColumnSites(families, np.zeros((len(families), rank)), intercept, parameters, beside)


def _margin(name: str, column: ObservedColumn, levels: int) -> tuple[float, dict[str, Any]]:
    """Intercept and parameters of a column that depends on no latents."""
    family = family_of(name)
    if isinstance(family, Ordered):
        return 0.0, replace(family, n_classes=levels).first(column)
    if family.link == "share":
        return float(logit(np.clip(column.mean(), 1e-3, 1.0 - 1e-3))), family.first(column)
    return family.intercept(column)[0], family.first(column, share=1.0)


def gather(rows: Array, sites: ColumnSites) -> list[ObservedCells]:
    """The observed cells of a table, rows in order, with their sites."""
    seen = ~np.isnan(rows)
    cells = []
    for columns in _together(sites):
        row, place = np.nonzero(seen[:, columns])
        if not len(row):
            continue
        column = columns[place]
        family = family_of(sites.families[columns[0]])
        if len(columns) == 1:
            values = sites.parameters[columns[0]]
        else:
            table = {name: np.array([sites.parameters[c][name] for c in columns]) for name in family.parameters}
            values = {name: numbers[place] for name, numbers in table.items()}
        cells.append(ObservedCells(row, column, family.potential(sites.observed(rows, row, column), values)))
    return cells


def restrict(cells: list[ObservedCells], index: Index, n: int) -> list[ObservedCells]:
    """The cells of some rows, which are counted anew from zero."""
    if len(index) == n:
        return cells
    position = np.full(n, -1)
    position[index] = np.arange(len(index))
    kept = [(position[part.row], part) for part in cells]
    return [
        ObservedCells(at[at >= 0], part.column[at >= 0], part.potential.select(at >= 0))
        for at, part in kept
        if np.any(at >= 0)
    ]


def _together(sites: ColumnSites) -> list[Index]:
    """Columns that one potential serves: of one family, whose parameters may be one number per site."""
    groups: dict[Any, list[int]] = {}
    for column, name in enumerate(sites.families):
        template = family_of(name).template
        shared = set(template.free) <= set(template.arrays)
        alone = not sites.beside or sites.beside[column] < 0
        groups.setdefault((name, alone) if shared else column, []).append(column)
    return [np.array(columns) for columns in groups.values()]
