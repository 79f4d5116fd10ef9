"""Quadrature nodes for sites that compiled code will visit one after the other."""

from __future__ import annotations

import numpy as np

from latlin.inference.forms.node_plan import Target, lay_even_nodes, lay_nodes
from latlin.inference.forms.sites import Sites
from latlin.numerics.arrays import Array


def site_nodes(sites: Sites, target: Target, power: float = 1.0) -> tuple[Array, Array]:
    """Nodes x and log weights, (sites, nodes), for φ_n(x + o_n)^{power·weight_n} near the target's Gaussians.

    The sites are of one potential.
    """
    ((_, potential),) = sites.blocks
    exponent = power * sites.weight
    regions = [(np.asarray(centre) - sites.offset, width) for centre, width in potential.regions()]

    def log_f(x: Array) -> Array:
        # φ⁰ = 1, also where log φ = −∞
        return exponent * np.where(exponent > 0.0, potential.log_density(x + sites.offset), 0.0)

    even = None if potential.strip is None else lay_even_nodes(log_f, target, np.asarray(potential.strip))
    if even is not None:
        return even
    return lay_nodes(log_f, target, regions, kinks=not potential.smooth)
