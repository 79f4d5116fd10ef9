"""A smooth field on the cells of a regular grid with rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from latlin.additive.by import vary_field
from latlin.additive.expression import evaluate
from latlin.additive.intrinsic import IntrinsicPart, scale_structure
from latlin.additive.places import FieldPlace, indicator
from latlin.additive.term import COEFFICIENT_SCALE, Part, Surroundings, Term, standard_deviation
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_whole
from latlin.numerics.stored import storable

#: cells of a lattice at most
MOST_CELLS = 10**7


@storable
@dataclass(frozen=True)
class Lattice(Term):
    """An intrinsic field on a grid.

    Parameters
    ----------
    row, column : str
        Columns of the table with the whole-numbered place of each row of the table, from zero.
    shape : pair of int, optional
        Size of the grid; without it the largest places of the training table say it.
    order : {1, 2}
        1: neighbours are alike (Besag's field). 2: each cell is like the mean of its neighbours, which is smoother.
    by : str, optional
        A column of labels (one field per label) or of numbers (which multiply the field).

    Examples
    --------
    >>> part = Lattice("i", "j", (2, 3)).prepare({"i": [0, 1], "j": [0, 2]}, Surroundings())
    >>> part.size
    6
    """

    row: str
    column: str
    shape: tuple[int, int] | None = None
    order: int = 1
    by: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if np.ndim(self.order) or self.order not in (1, 2):
            raise ValueError(f"order of a Lattice must be 1 or 2, got {self.order!r}")
        if self.shape is not None and not (isinstance(self.shape, tuple | list) and len(self.shape) == 2):
            raise ValueError(f"shape must be a pair of integers, got {self.shape!r:.80}")
        for size in self.shape or ():
            check_whole("shape", size, 1)

    @property
    def label(self) -> str:
        return f"lattice({self.row}, {self.column})"

    def prepare(self, frame: Any, around: Surroundings) -> Part:
        return vary_field(self.by, frame, around, self._field)

    def _field(self, frame: Any, around: Surroundings) -> Part:
        shape = self.shape or tuple(int(evaluate(source, frame).max()) + 1 for source in (self.row, self.column))
        height, width = shape
        if height * width > MOST_CELLS:
            raise ValueError(
                f"{self.label} has {height} × {width} cells, more than {MOST_CELLS}: number the places from 0"
            )
        chains = [_chain(height), _chain(width)]
        R = sparse.kron(chains[0], sparse.eye_array(width)) + sparse.kron(sparse.eye_array(height), chains[1])
        R = sparse.csc_array(R if self.order == 1 else R @ R)
        place = GridCells(self.row, self.column, height, width)
        place.rows(frame)
        return IntrinsicPart(
            self.label,
            place,
            scale_structure(R, np.ones((1, height * width))),
            np.zeros((0, height * width)),
            (),
            COEFFICIENT_SCALE * around.unit,
            standard_deviation(f"sd({self.label})", around.unit),
        )


@storable
@dataclass(frozen=True)
class GridCells(FieldPlace):
    """Cells of a grid, row by row."""

    row: str
    column: str
    height: int
    width: int

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{i},{j}" for i in range(self.height) for j in range(self.width))

    def rows(self, frame: Any) -> sparse.csr_array:
        i, j = self._whole(self.row, frame, self.height), self._whole(self.column, frame, self.width)
        return indicator((i * self.width + j).astype(np.int64), self.height * self.width)

    @staticmethod
    def _whole(source: str, frame: Any, size: int) -> Array:
        places = evaluate(source, frame)
        bad = (places != np.round(places)) | (places < 0) | (places >= size)
        if np.any(bad):
            raise ValueError(f"{source} must hold whole numbers from 0 to {size - 1}, got {places[bad][0]:g}")
        return places


def _chain(n: int) -> sparse.csr_array:
    """Squares of the differences along a line of n cells."""
    if n == 1:
        return sparse.csr_array((1, 1))
    differences = sparse.diags_array([-np.ones(n - 1), np.ones(n - 1)], offsets=[0, 1], shape=(n - 1, n))
    return sparse.csr_array(differences.T @ differences)
