"""Derivatives of a site term in the parameters of its potential, one number a site.

For a location–scale family ψ(x) = f((x − loc)/scale) − log scale,

    ∂A/∂loc = −A[ψ′],   ∂A/∂log scale = −weight − A[(x − loc)ψ′].

Degrees of freedom and shapes are central differences of order four in their logarithm, of site terms that are accurate
to about 1e-11; the cuts of ordered classes move the two edges of a site's interval.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from latlin.inference.evidence.terms import SiteTerm
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential
from latlin.potentials.ordinal import Ordinal

#: step of the differences in a logarithm
STEP = 0.01
#: positive parameters without a closed form
SHAPES = ("df", "shape")


def has_parameters(potential: Potential) -> bool:
    """Whether `parameter_gradients` has anything to say of a family; labels and counts are no parameters."""
    return bool({"scale", "cuts", *SHAPES} & set(potential.parameters))


def parameter_gradients(term: SiteTerm, potential: Potential, span: slice, weight: Array) -> dict[str, Array]:
    """∂A/∂parameter of the sites in a span; cuts are summed over sites, labels and counts have none."""
    found: dict[str, Array] = {}
    if isinstance(potential, Ordinal):
        return {"cuts": _cuts(term, potential, span)}
    if {"loc", "scale"} <= set(potential.parameters):
        shift, stretch = term.motion(potential, span)
        found["loc"] = -shift
        found["scale"] = -(weight + stretch) / np.asarray(potential.scale)  # type: ignore[attr-defined]
    for name in set(SHAPES) & set(potential.parameters):
        found[name] = _shape(term, potential, span, name)
    return found


def _shape(term: SiteTerm, potential: Potential, span: slice, name: str) -> Array:
    slope = _logarithmic(lambda factor: term.value(_scaled(potential, name, factor), span))
    return slope / np.asarray(getattr(potential, name))


def _scaled(potential: Potential, name: str, factor: float) -> Potential:
    values = {key: getattr(potential, key) for key in potential.parameters}
    return type(potential)(**(values | {name: factor * values[name]}))


def _logarithmic(f: Callable[[float], Array]) -> Array:
    """df/d log t at t = 1."""
    near = f(float(np.exp(STEP))) - f(float(np.exp(-STEP)))
    far = f(float(np.exp(2.0 * STEP))) - f(float(np.exp(-2.0 * STEP)))
    return (8.0 * near - far) / (12.0 * STEP)


def _cuts(term: SiteTerm, potential: Ordinal, span: slice) -> Array:
    """The edges move together against x, ∂/∂lower + ∂/∂upper = −A[ψ′], and the width of an interval moves the upper."""
    count = span.stop - span.start
    shift = term.motion(potential, span).shift
    inner = np.broadcast_to(np.isfinite(potential.lower) & np.isfinite(potential.upper), count)
    widths = np.where(inner, potential.upper - potential.lower, 1.0)
    opened = _logarithmic(lambda factor: term.value(potential.widened(factor), span)) / widths
    upper = np.where(inner, opened, np.where(np.isfinite(potential.upper), -shift, 0.0))
    lower = -shift - upper
    y = np.broadcast_to(potential.y, count).astype(int)
    # class k lies between cuts k − 1 and k
    total = np.bincount(y, upper, potential.cuts.size + 1)[:-1] + np.bincount(y, lower, potential.cuts.size + 1)[1:]
    return np.asarray(total)
