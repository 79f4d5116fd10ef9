"""Terms along a line: where to look at them, and the rows that say their value there."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from latlin.additive.ar1 import AR1Part
from latlin.additive.intrinsic import IntrinsicPart
from latlin.additive.places import Line, Splines
from latlin.additive.smooth import SmoothPart
from latlin.additive.term import Part
from latlin.numerics.arrays import Array


def curve_rows(part: Part, points: int) -> tuple[Array, sparse.csr_array]:
    """Places along a term's column, and rows over its coefficients."""
    if isinstance(part, IntrinsicPart) and isinstance(part.place, Splines):
        x = np.linspace(part.place.low, part.place.high, points)
        return x, part.with_trends(part.place.weights(x))
    if isinstance(part, IntrinsicPart) and isinstance(part.place, Line):
        return part.place.nodes, part.with_trends(part.place.weights(part.place.nodes))
    if isinstance(part, AR1Part):
        return part.place.nodes, part.place.weights(part.place.nodes)
    if isinstance(part, SmoothPart):
        return part.nodes, sparse.csr_array(sparse.eye_array(part.size, format="csr")[:: part.states])
    raise ValueError(f"{part.label} has no curve: it is not a function of one column; effects() has its levels")
