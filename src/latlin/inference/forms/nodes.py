"""Quadrature nodes that stay good while the Gaussian they were laid for moves a little.

`latlin.inference.ep.kernels` visits sites one after the other in compiled code, where each visit changes the Gaussian
of the next. Nodes are laid once, for many sites together; they are finer and reach further than one Gaussian would
need. Panels of Gauss–Legendre nodes serve any f: they stand about the Gaussian, its product with f, and the regions
where f bends. Where f is analytic in a strip about the real axis, equidistant nodes do with far fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from latlin.inference.forms.sites import Sites
from latlin.numerics.arrays import Array
from latlin.numerics.quadrature import Regions, panels, region_edges

ORDER = 10
OWN = np.linspace(-12.0, 12.0, 17)[:, None]
TILTED = np.array([0.0, 1.5, 3.0, 4.5, 6.0, 8.0, 10.0, 14.0, 20.0, 28.0])
TILTED = np.concatenate([-TILTED[:0:-1], TILTED])[:, None]
#: distances from a kink, in widths of its region: powers |x|^q are integrated to 1e-11 from q = ½ on
GRADED = 4.0 ** np.arange(-10.0, 0.0)
GRADED = np.concatenate([-GRADED[::-1], GRADED])[:, None]
#: largest distance of equidistant nodes, in widths of the strip and of the product
STEP_IN_STRIPS, STEP_IN_WIDTHS = 0.19, 0.4
#: equidistant nodes beyond which panels are cheaper
MOST_EVEN = 256


class NodeTarget(NamedTuple):
    """Gaussians and their products with f: means and variances, one per site."""

    mean: Array
    variance: Array
    tilted_mean: Array
    tilted_variance: Array


def lay_nodes(
    log_f: Callable[[Array], Array], target: NodeTarget, regions: Regions, *, kinks: bool = False
) -> tuple[Array, Array]:
    """Nodes x and log weights, of shape (sites, nodes), with Σ exp(log w) g(x) = ∫ f(x) g(x) dx.

    Parameters
    ----------
    log_f : callable
        (nodes, sites) → log f.
    target : Target
        What the g of interest look like: normal densities near these, times a polynomial.
    regions : sequence of (centre, width)
        Where f bends, see `latlin.numerics.quadrature`.
    kinks : bool
        f has kinks or cusps at the centres: panels shrink towards them.
    """
    m, s = target.mean, np.sqrt(target.variance)
    centre, width = (target.tilted_mean - m) / s, np.sqrt(target.tilted_variance) / s
    edges = [np.broadcast_to(OWN, (len(OWN), m.size)), centre + width * TILTED, *region_edges(m, s, regions)]
    if kinks:
        edges += [(np.asarray(c) - m) / s + np.asarray(width) / s * GRADED for c, width in regions]
    low = np.minimum(OWN[0], centre + width * TILTED[0])
    high = np.maximum(OWN[-1], centre + width * TILTED[-1])
    z, w = panels(edges, low, high, ORDER)
    x = m + s * z
    with np.errstate(divide="ignore"):
        log_w = np.log(w * s) + log_f(x)
    return np.ascontiguousarray(x.T), np.ascontiguousarray(log_w.T)


def lay_even_nodes(log_f: Callable[[Array], Array], target: NodeTarget, strip: Array) -> tuple[Array, Array] | None:
    """As `lay_nodes`, equidistant, for an f analytic in |Im x| < strip; None where that takes too many."""
    s, width = np.sqrt(target.variance), np.sqrt(target.tilted_variance)
    reach = np.minimum(28.0 * width, 14.0 * s)
    low = np.minimum(target.mean - 12.0 * s, target.tilted_mean - reach)
    high = np.maximum(target.mean + 12.0 * s, target.tilted_mean + reach)
    most = np.minimum(STEP_IN_STRIPS * strip, STEP_IN_WIDTHS * width)
    count = int(np.ceil(np.max((high - low) / most))) + 1
    if count > MOST_EVEN:
        return None
    step = (high - low) / (count - 1)
    x = low + step * np.arange(count)[:, None]
    return np.ascontiguousarray(x.T), np.ascontiguousarray((np.log(step) + log_f(x)).T)


def site_nodes(sites: Sites, target: NodeTarget, power: float = 1.0) -> tuple[Array, Array]:
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
