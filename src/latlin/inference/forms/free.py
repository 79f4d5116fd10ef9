"""Free-form mean field: q(w) = ∏_d q_d(w_d), every factor of the best shape, for sites on single coordinates.

    q_d(w_d) = φ_d(α_d w_d) N(w_d | c_d, 1/Λ_dd) / Z_d,   c_d = (b_d − Σ_{j≠d} Λ_dj ⟨w_j⟩) / Λ_dd

where the Gaussian factors are exp(constant − ½wᵀΛw + bᵀw), w counted from the prior mean. Challis (2013), §3.4 and
A.7.1, signs corrected. Each factor is the best given the others, so that the bound never falls; Anderson mixing
extrapolates the sweeps and is taken only when the bound rises further.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.densities.density import Factorised, FactorTable
from latlin.inference.ep.kernels import visit_coordinates
from latlin.inference.forms.prior import gaussian_part
from latlin.inference.forms.projections import stacked_rows, stacked_sites
from latlin.inference.forms.sites import Sites
from latlin.inference.model import LatentLinearModel
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.ascent import mix
from latlin.numerics.quadrature import Regions, panel_nodes, region_edges
from latlin.numerics.stored import storable_as
from latlin.potentials.base import TiltedMoments
from latlin.potentials.custom import Custom

# --- Quadrature nodes that stay good while the Gaussian they were laid for moves a little.
#
# `latlin.inference.ep.kernels` visits sites one after the other in compiled code, where each visit changes the Gaussian
# of the next. Nodes are laid once, for many sites together; they are finer and reach further than one Gaussian would
# need. Panels of Gauss–Legendre nodes serve any f: they stand about the Gaussian, its product with f, and the regions
# where f bends. Where f is analytic in a strip about the real axis, equidistant nodes do with far fewer.


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
    z, w = panel_nodes(edges, low, high, ORDER)
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


MEMORY = 20
PIECE = 256


class FreeFormState(NamedTuple):
    """Centres of the factors' Gaussian parts, the factors' means, the bound, how far from fixed, and the past."""

    centre: Array
    mean: Array
    bound: float
    residual: float
    points: Array
    moves: Array


@dataclass(frozen=True)
class FreeLogDensity:
    """log ∏_d q_d at rows of w, from the parts of the `FreeForm` and the centres of its factors."""

    origin: Array
    centre: Array
    precision: Array  # Λ_dd
    sites: Sites
    coordinates: NDArray[np.int64]
    scale: Array
    log_z: float  # Σ_d log Z_d

    def __call__(self, w: Array) -> Array:
        deviation = w - self.origin - self.centre
        gaussian = 0.5 * np.sum(np.log(self.precision) - LOG_2PI - self.precision * deviation**2, axis=1)
        x = (w - self.origin)[:, self.coordinates] * self.scale
        return gaussian + self.sites.log_density(x).sum(axis=1) - self.log_z


def _take_apart(density: FreeLogDensity) -> dict[str, Any]:
    """The parts; none where a potential is a function of the user's, which no file can hold."""
    if any(isinstance(potential, Custom) for potential in density.sites.potentials):
        return {}
    return dict(vars(density))


def _put_together(**parts: Any) -> Any:
    return FreeLogDensity(**parts) if parts else _refuse


def _refuse(_: Array) -> NoReturn:
    raise ValueError("the log density of this posterior is a function of yours and was not stored; fit again to use it")


storable_as(FreeLogDensity, _take_apart, _put_together)


@dataclass(frozen=True)
class FreeForm:
    """A model with at most one site per coordinate.

    Parameters
    ----------
    origin : ndarray of shape (dim,)
        Prior mean, from which w is counted.
    precision, linear, constant
        Λ, b and the constant of the Gaussian factors.
    sites : Sites
        As functions of x = α w.
    coordinates, scale : ndarray of shape (n_sites,)
        The coordinate of each site, and α.
    """

    origin: Array
    precision: Array
    linear: Array
    constant: float
    sites: Sites
    coordinates: NDArray[np.int64]
    scale: Array

    @property
    def independent(self) -> bool:
        """The posterior itself factorises."""
        return not np.any(self.precision - np.diag(np.diagonal(self.precision)))

    def evaluate(self, centre: Array) -> FreeFormState:
        """The factors with these centres."""
        own = np.diagonal(self.precision)
        tilted = self.tilted(centre)
        m = centre.copy()
        m[self.coordinates] = tilted.mean / self.scale
        pull = self.precision @ m
        # Σ_d [log Z_d + ½ log(2π/Λ_dd) + ½Λ_dd(m_d − c_d)²] + constant + bᵀm − ½mᵀΛm
        factors = float(tilted.log_z.sum()) + 0.5 * float(np.sum(LOG_2PI - np.log(own) + own * (m - centre) ** 2))
        bound = factors + self.constant + float(self.linear @ m) - 0.5 * float(m @ pull)
        wanted = (self.linear - pull) / own + m
        residual = float(np.max(np.abs(wanted - centre) * np.sqrt(own), initial=0.0))
        empty = np.zeros((0, len(m)))
        return FreeFormState(centre, m, bound, residual, empty, empty)

    def tilted(self, centre: Array) -> TiltedMoments:
        """log Z_d, mean and variance of x = αw_d under each factor with a site."""
        own = np.diagonal(self.precision)[self.coordinates]
        return self.sites.tilted_moments(self.scale * centre[self.coordinates], self.scale**2 / own)

    def step(self, state: FreeFormState) -> FreeFormState:
        """A sweep over the coordinates, extrapolated if that helps."""
        swept = self.evaluate(self._sweep(state))
        points = np.concatenate([state.points[-MEMORY:], state.centre[None]])
        moves = np.concatenate([state.moves[-MEMORY:], (swept.centre - state.centre)[None]])
        guess = self.evaluate(mix(points, moves))
        if guess.bound > swept.bound:
            return guess._replace(points=points, moves=moves)
        return swept._replace(points=points, moves=moves)

    def _sweep(self, state: FreeFormState) -> Array:
        mean, centre = state.mean.copy(), state.centre.copy()
        free = np.setdiff1d(np.arange(len(mean)), self.coordinates)
        nothing = np.zeros((len(free), 0))
        shared = (self.precision, self.linear, mean, centre)
        visit_coordinates(*shared, free, np.ones(len(free)), nothing, nothing, np.zeros((len(free), 4)), True)
        for span, _ in self.sites.blocks:
            start = span.start
            while start < span.stop:
                part = slice(start, min(start + PIECE, span.stop))
                plan = self._plan(part, self.centres(mean))
                start += visit_coordinates(*shared, self.coordinates[part], self.scale[part], *plan, True)
        return centre

    def centres(self, mean: Array) -> Array:
        """The centres that the means of the other factors ask for."""
        return (self.linear - self.precision @ mean) / np.diagonal(self.precision) + mean

    def _plan(self, part: slice, centre: Array) -> tuple[Array, Array, Array]:
        """Nodes for some sites, laid for the centres as they are now."""
        sites, scale = self.sites.part(part), self.scale[part]
        k = self.coordinates[part]
        m, v = scale * centre[k], scale**2 / np.diagonal(self.precision)[k]
        _, mean, variance = sites.tilted_moments(m, v)
        target = NodeTarget(m, v, mean, np.maximum(variance, 1e-20 * v))
        return *site_nodes(sites, target), np.column_stack(target)

    def density(self, state: FreeFormState) -> Factorised:
        """The factors as a density over w."""
        own = np.diagonal(self.precision)
        tilted = self.tilted(state.centre)
        variance = 1.0 / own
        variance[self.coordinates] = tilted.variance / self.scale**2
        log_z = float(tilted.log_z.sum())

        log_density = FreeLogDensity(
            self.origin, state.centre, own.copy(), self.sites, self.coordinates, self.scale, log_z
        )
        return Factorised(self.origin + state.mean, variance, log_density, self._tables(state))

    def _tables(self, state: FreeFormState) -> tuple[FactorTable, ...]:
        own = np.diagonal(self.precision)
        free = np.setdiff1d(np.arange(len(own)), self.coordinates)
        z = np.linspace(-9.0, 9.0, 1801)
        masses = np.exp(-0.5 * z**2)
        points = (self.origin + state.centre)[free, None] + z / np.sqrt(own[free, None])
        tables = [FactorTable(free, points, np.broadcast_to(masses / masses.sum(), points.shape))] if len(free) else []
        for span, _ in self.sites.blocks:
            for start in range(span.start, span.stop, PIECE):
                part = slice(start, min(start + PIECE, span.stop))
                tables.append(self._table(part, state.centre))
        return tuple(tables)

    def _table(self, part: slice, centre: Array) -> FactorTable:
        nodes, log_weights, target = self._plan(part, centre)
        logs = log_weights - 0.5 * (nodes - target[:, :1]) ** 2 / target[:, 1:2]
        masses = np.exp(logs - logs.max(axis=1, keepdims=True))
        k, scale = self.coordinates[part], self.scale[part, None]
        # a negative α reverses the line
        order = np.argsort(nodes / scale, axis=1)
        points = np.take_along_axis(nodes / scale, order, axis=1) + self.origin[k, None]
        masses = np.take_along_axis(masses / masses.sum(axis=1, keepdims=True), order, axis=1)
        return FactorTable(k, points, masses)


def free_form(model: LatentLinearModel) -> FreeForm | None:
    """The form of a model, or None when a site is on more than one coordinate or a coordinate has two sites."""
    rows = stacked_rows(model)
    single = _single_coordinates(rows)
    if single is None:
        return None
    coordinates, scale = single
    part = gaussian_part(model)
    residual = part.measured_values - part.measured_rows @ part.mean
    precision = part.measured_rows.T @ part.measured_rows
    if part.whitening is not None:
        root = part.whitening.solve(np.eye(model.dim))
        precision = precision + root.T @ root
    own = np.diagonal(precision)
    if not np.all(own > 0.0):
        raise ValueError(
            f"mean field needs a Gaussian factor on every coordinate, and {int(np.argmin(own))} has none; "
            "use engine 'gkl'"
        )
    constant = part.constant + part.measured_constant - 0.5 * float(residual @ residual)
    linear = part.measured_rows.T @ residual
    sites = stacked_sites(model).shifted(scale * part.mean[coordinates])
    return FreeForm(part.mean, precision, linear, constant, sites, coordinates, scale)


def _single_coordinates(rows: Any) -> tuple[NDArray[np.int64], Array] | None:
    if isinstance(rows, np.ndarray) and len(rows) and np.count_nonzero(rows[0]) != 1:
        return None
    matrix = sparse.csr_array(rows)
    matrix.eliminate_zeros()
    if np.any(np.diff(matrix.indptr) != 1) or len(np.unique(matrix.indices)) != matrix.nnz:
        return None
    return matrix.indices.astype(np.int64), matrix.data
