"""Derivatives of a site term in the parameters of its potential, one number per site.

For a location–scale family ψ(x) = f((x − loc)/scale) − log scale,

    ∂A/∂loc = −A[ψ′],   ∂A/∂log scale = −weight − A[(x − loc)ψ′].

Every other parameter that a family declares in `free` is left to the term, which has a closed form or takes differences
of its value.
"""

from __future__ import annotations

import numpy as np

from latlin.inference.evidence.terms import SiteTerm
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential


def has_parameters(potential: Potential) -> bool:
    """Whether `parameter_gradients` has anything to say of a family; labels and counts are no parameters."""
    return potential.location_scale or bool(potential.free)


def parameter_gradients(term: SiteTerm, potential: Potential, span: slice, weight: Array) -> dict[str, Array]:
    """∂A/∂parameter of the sites in a span; one vector for all sites (cut points) is summed over them."""
    found: dict[str, Array] = {}
    if potential.location_scale:
        shift, stretch = term.motion(potential, span)
        found["loc"] = -shift
        found["scale"] = -(weight + stretch) / np.asarray(potential.scale)  # type: ignore[attr-defined]
    for name in potential.free:
        if name not in found:
            slope = term.slope(potential, name, span)
            found[name] = slope if slope.ndim == 1 else slope.sum(axis=-1)
    return found
