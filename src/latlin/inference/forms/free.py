"""Free-form mean field: q(w) = ∏_d q_d(w_d), every factor of the best shape, for sites on single coordinates.

    q_d(w_d) = φ_d(α_d w_d) N(w_d | c_d, 1/Λ_dd) / Z_d,   c_d = (b_d − Σ_{j≠d} Λ_dj ⟨w_j⟩) / Λ_dd

where the Gaussian factors are exp(constant − ½wᵀΛw + bᵀw), w counted from the prior mean. Challis (2013), §3.4 and
A.7.1, signs corrected. Each factor is the best given the others, so that the bound never falls; Anderson mixing
extrapolates the sweeps and is taken only when the bound rises further.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.densities.factorised import Factorised, FactorTable
from latlin.inference.ep.kernels import visit_coordinates
from latlin.inference.forms.nodes import NodeTarget, site_nodes
from latlin.inference.forms.prior import gaussian_part
from latlin.inference.forms.projections import stacked_rows
from latlin.inference.forms.sites import Sites
from latlin.inference.model import LatentLinearModel
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.ascent import mix
from latlin.numerics.stored import storable_as
from latlin.potentials.base import TiltedMoments
from latlin.potentials.custom import Custom

MEMORY = 20
BLOCK = 256


class FreeFormState(NamedTuple):
    """Centres of the factors' Gaussian parts, the factors' means, the bound, how far from fixed, and the past."""

    centre: Array
    mean: Array
    bound: float
    residual: float
    points: Array
    moves: Array


@dataclass(frozen=True)
class LogDensity:
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


def _take_apart(density: LogDensity) -> dict[str, Any]:
    """The parts; none where a potential is a function of the user's, which no file can hold."""
    if any(isinstance(potential, Custom) for potential in density.sites.potentials):
        return {}
    return dict(vars(density))


def _put_together(**parts: Any) -> Any:
    return LogDensity(**parts) if parts else _refuse


def _refuse(_: Array) -> NoReturn:
    raise ValueError("the log density of this posterior is a function of yours and was not stored; fit again to use it")


storable_as(LogDensity, _take_apart, _put_together)


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
                part = slice(start, min(start + BLOCK, span.stop))
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

        log_density = LogDensity(self.origin, state.centre, own.copy(), self.sites, self.coordinates, self.scale, log_z)
        return Factorised(self.origin + state.mean, variance, log_density, self._tables(state))

    def _tables(self, state: FreeFormState) -> tuple[FactorTable, ...]:
        own = np.diagonal(self.precision)
        free = np.setdiff1d(np.arange(len(own)), self.coordinates)
        z = np.linspace(-9.0, 9.0, 1801)
        masses = np.exp(-0.5 * z**2)
        points = (self.origin + state.centre)[free, None] + z / np.sqrt(own[free, None])
        tables = [FactorTable(free, points, np.broadcast_to(masses / masses.sum(), points.shape))] if len(free) else []
        for span, _ in self.sites.blocks:
            for start in range(span.start, span.stop, BLOCK):
                part = slice(start, min(start + BLOCK, span.stop))
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
    sites = Sites.of(model).shifted(scale * part.mean[coordinates])
    return FreeForm(part.mean, precision, linear, constant, sites, coordinates, scale)


def _single_coordinates(rows: Any) -> tuple[NDArray[np.int64], Array] | None:
    if isinstance(rows, np.ndarray) and len(rows) and np.count_nonzero(rows[0]) != 1:
        return None
    matrix = sparse.csr_array(rows)
    matrix.eliminate_zeros()
    if np.any(np.diff(matrix.indptr) != 1) or len(np.unique(matrix.indices)) != matrix.nnz:
        return None
    return matrix.indices.astype(np.int64), matrix.data
