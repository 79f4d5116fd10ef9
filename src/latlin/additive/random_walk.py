"""Random walks of first and second order on a line or a circle.

Their increments, or the changes of their slope, are independent: x_{i+1} − x_i ~ N(0, sd²h_i) up to the common scale
that makes the typical standard deviation of the whole walk sd (Rue and Held 2005, chapter 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from latlin.additive.by import vary_field
from latlin.additive.expression import evaluate
from latlin.additive.intrinsic import IntrinsicPart, scale_structure
from latlin.additive.places import Line, runs_of, square_root
from latlin.additive.term import COEFFICIENT_SCALE, Part, PredictorRows, Surroundings, Term, Values, standard_deviation
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable

#: most nodes that a regular grid may have per distinct place
FILL = 20
#: share of a gap within which a place is on a node
NEAR = 1e-9
#: most steps beyond the ends for which innovations are made
FARTHEST = 10_000


@storable
@dataclass(frozen=True)
class RandomWalk(Term):
    """A walk over the values of a column.

    Times between the first and the last one belong to the walk even where there are no rows, if all of them lie on a
    regular grid. Beyond the ends the walk goes on: predictions there are as wide as the walk may have gone.

    Parameters
    ----------
    column : str
        A numeric column or an expression of columns.
    order : {1, 2}
        1: the level walks. 2: the slope walks, which is smoother.
    cyclic : bool
        The last place is followed by the first one (months, hours, angles).
    by : str, optional
        A column of labels: one walk per label, with one common sd; or of numbers, which multiply the walk.

    Examples
    --------
    >>> part = RandomWalk("week").prepare({"week": [1, 2, 4]}, Surroundings())
    >>> part.names, part.constraint.shape
    (('rw1(week)[1]', 'rw1(week)[2]', 'rw1(week)[3]', 'rw1(week)[4]'), (1, 4))
    """

    column: str
    order: int = 1
    cyclic: bool = False
    by: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if np.ndim(self.order) or self.order not in (1, 2):
            raise ValueError(f"order of a RandomWalk must be 1 or 2, got {self.order!r}")

    @property
    def label(self) -> str:
        return f"rw{self.order}({self.column})"

    def prepare(self, frame: Any, around: Surroundings) -> Part:
        return vary_field(self.by, frame, around, self._field)

    def _field(self, frame: Any, around: Surroundings) -> Part:
        nodes = grid(evaluate(self.column, frame), self.label, 3 if self.order == 2 or self.cyclic else 2)
        gaps = np.diff(nodes)
        period = float(nodes[-1] - nodes[0] + gaps.mean()) if self.cyclic else None
        unit = np.append(gaps, gaps.mean()) / gaps.mean() if self.cyclic else gaps / gaps.mean()
        differences = _differences(unit, self.order, self.cyclic)
        structure = scale_structure(differences.T @ differences, _null(nodes, self.order, self.cyclic))
        has_slope = self.order == 2 and not self.cyclic
        trends = ((nodes - nodes.mean()) / nodes.std())[None, :] if has_slope else np.zeros((0, len(nodes)))
        return RandomWalkPart(
            self.label,
            Line(self.column, nodes, self.order, period),
            structure,
            trends,
            ("slope",) if has_slope else (),
            COEFFICIENT_SCALE * around.unit,
            standard_deviation(f"sd({self.label})", around.unit),
        )


@storable
@dataclass(frozen=True)
class RandomWalkPart(IntrinsicPart):
    """A walk that goes on beyond its ends."""

    place: Line

    def rows(self, frame: Any, values: Values) -> PredictorRows:
        x, line = self.place.values(frame), self.place
        design = self.with_trends(line.weights(x))
        beyond = None if line.period is not None else steps_beyond(line, x, self.label)
        fresh = [] if beyond is None else [_innovations(steps, line.order) for steps in beyond]
        if line.order == 1 and (bridges := _bridges(line, x)) is not None:
            fresh.append(bridges)
        if not fresh:
            return PredictorRows(design)
        return PredictorRows(design, sparse.csr_array(sparse.hstack(fresh)) * self.innovation(values))


def grid(x: Array, name: str, least: int) -> Array:
    """The distinct places; all places of a regular grid where they lie on one."""
    nodes = np.unique(x)
    if len(nodes) < least:
        raise ValueError(f"{name} needs at least {least} distinct places, got {len(nodes)}")
    step = np.diff(nodes).min()
    count = (nodes - nodes[0]) / step
    if np.allclose(count, np.round(count), atol=1e-6) and count[-1] <= FILL * len(nodes):
        return np.asarray(nodes[0] + step * np.arange(round(float(count[-1])) + 1))
    return nodes


def steps_beyond(line: Line, x: Array, name: str) -> tuple[Array, Array] | None:
    """How many steps each place lies before the first node and after the last one; None where all lie inside."""
    before, after = np.maximum(line.nodes[0] - x, 0.0), np.maximum(x - line.nodes[-1], 0.0)
    if not np.any(before + after > 0.0):
        return None
    step = float(np.diff(line.nodes).mean())
    if (most := float((before + after).max()) / step) > FARTHEST:
        raise ValueError(
            f"column {line.source!r} lies up to {most:.3g} steps beyond the places of {name}, which goes on for "
            f"{FARTHEST} at most"
        )
    return before / step, after / step


def _differences(gaps: Array, order: int, cyclic: bool) -> sparse.csr_array:
    """Rows whose squares add up to the penalty, for nodes with these gaps (in units of their mean)."""
    count = len(gaps) if cyclic else len(gaps) + 1
    first = sparse.eye_array(count, count, k=1, format="lil") - sparse.eye_array(count, format="lil")
    first = sparse.lil_array(first)
    if cyclic:
        first[count - 1, 0] = 1.0
    first = sparse.csr_array(first)[: len(gaps)]
    if order == 1:
        return sparse.csr_array(sparse.diags_array(1.0 / np.sqrt(gaps)) @ first)
    # Σ (change of slope)² / distance, a discrete ∫ f″²
    slopes = sparse.csr_array(sparse.diags_array(1.0 / gaps) @ first)
    if cyclic:
        later = sparse.csr_array(sparse.vstack([slopes[1:], slopes[:1]]))
        return sparse.csr_array(sparse.diags_array((0.5 * (gaps + np.roll(gaps, -1))) ** -0.5) @ (later - slopes))
    return sparse.csr_array(sparse.diags_array((0.5 * (gaps[1:] + gaps[:-1])) ** -0.5) @ (slopes[1:] - slopes[:-1]))


def _null(nodes: Array, order: int, cyclic: bool) -> Array:
    constant = np.ones(len(nodes))
    return np.stack([constant, nodes - nodes.mean()]) if order == 2 and not cyclic else constant[None, :]


def _bridges(line: Line, x: Array) -> sparse.csr_array | None:
    """What a first-order walk does between two nodes: at shares s ≤ t of a gap the covariance is gap · s(1 − t)."""
    nodes = line.nodes if line.period is None else np.append(line.nodes, line.nodes[0] + line.period)
    places, which = np.unique(x, return_inverse=True)
    widths = np.diff(nodes)
    gap = np.clip(np.searchsorted(nodes, places) - 1, 0, len(widths) - 1)
    share = (places - nodes[gap]) / widths[gap]
    # places on nodes, up to rounding, and beyond the ends
    share = np.where((share > NEAR) & (share < 1.0 - NEAR), share, 0.0)
    if not np.any(share):
        return None
    units = widths / float(np.diff(line.nodes).mean())
    roots = []
    for run in runs_of(gap):
        s = share[run]
        roots.append(square_root(units[gap[run[0]]] * np.minimum.outer(s, s) * (1.0 - np.maximum.outer(s, s))))
    return sparse.csr_array(sparse.block_diag(roots, format="csr"))[which]


def _innovations(steps: Array, order: int) -> sparse.csr_array:
    """What independent innovations add after so many steps beyond an end; nothing where steps ≤ 0.

    After k steps a first-order walk has added Σ_{j≤k} z_j, a second-order walk Σ_{j≤k} (k − j + 1) z_j.
    """
    steps = np.maximum(steps, 0.0)
    j = np.arange(1, int(np.ceil(steps.max(initial=0.0))) + 1)
    share = np.clip(steps[:, None] - j + 1.0, 0.0, None)
    return sparse.csr_array(np.sqrt(np.minimum(share, 1.0)) if order == 1 else share)
