"""Full Gaussians in the coordinates (P, m) of their precision and mean, by sums over the sites alone.

At (m, S) one pass over the rows gives the sums of ⟨ψ_n⟩, of its slopes and of γ̂_n h̃_n h̃_nᵀ, and with them the bound,
its gradient, and the end of the natural-gradient step of length one,

    P̂ = Λ̃ + H̃ᵀΓ̂H̃,   m̂ = m + P̂⁻¹(b̃ − Λ̃m + H̃ᵀ ∂⟨ψ⟩/∂m)

(Challis (2013), eqs. 4.3.1–4.3.2, corrected). Nothing is kept per site; vectors are in units of the first posterior.
Rows in blocks are fitted in no other way; rows in memory where they are many times more than dimensions. There, in
many dimensions, the mean is moved to its best under every covariance before the sums are taken: P is the curvature of
the bound in m, so that a step P⁻¹g needs products with vectors alone. One or two steps in single precision come first;
the bound, its gradient and what is reported are in double precision.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import blas, lapack

from latlin.densities.density import Density
from latlin.inference.forms.site_family import exchange_prior, whiten_density
from latlin.inference.forms.sites import Start
from latlin.inference.forms.sums import BROAD, WIDE, SumForm, typical_terms
from latlin.inference.gaussian_kl.ascent import Reached, begin_at
from latlin.inference.mode import Expansion, deviations_from_mode, find_mode
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.ascent import Rules
from latlin.numerics.linalg import Cholesky, cholesky, symmetrise

#: standard deviations from the mode at which Newton's method has prepared a Gaussian KL fit
NEAR = 1.0
#: gradient in standard deviations beyond which a first Gaussian is too wide, and by how much its precision grows then
STEEP, NARROWER = 1e6, 4.0
#: rows per coordinate from which on a second rough step saves an exact one: a step leaves 1/80 of the error there
#: (16,000 × 123), with 50 and 80 rows per coordinate 1/30
MANY = 100
#: how far, relatively, rough steps may state the bound too high
SLACK = 1e-6


class SumPlace(NamedTuple):
    """N(m, P⁻¹), the bound's slope in m, and P̂."""

    m: Array
    precision: Array
    slope: Array
    precision_hat: Array


def evaluate(form: SumForm, m: Array, precision: Array, moving: bool = True) -> Reached[SumPlace] | None:
    """The Gaussian of a precision and a mean, or a better one; None where the precision or the bound is improper."""
    chol = try_cholesky(precision)
    if chol is None:
        return None
    found = form.expectation(m, chol, moving)
    bound = -np.inf if found is None else found.value + _covariance_terms(form, chol)
    if found is None or not np.isfinite(bound):
        return None
    m, _, slope, precision_hat = found
    # ∂B/∂C̃ = C̃(P − P̂), S̃ = C̃ᵀC̃
    root = chol.whiten(symmetrise(precision - precision_hat))
    gradient = max(float(np.abs(part).max(initial=0.0)) for part in (slope, root))
    return begin_at(SumPlace(m, precision, slope, precision_hat), bound, gradient, len(m) * (len(m) + 3) // 2)


def try_cholesky(precision: Array) -> Cholesky | None:
    try:
        return cholesky(precision)
    except ValueError:
        return None


def _covariance_terms(form: SumForm, chol: Cholesky) -> float:
    """What the covariance adds to ⟨log Gaussian factors⟩, and the entropy, with every constant."""
    own = form.own
    if own.quadratic is None:
        root = lapack.dtrtri(chol.factor, lower=0)[0]
        trace = float(np.einsum("de,de->", root, root))
    else:
        trace = float(np.einsum("de,de->", own.quadratic, chol.inverse()))
    return -0.5 * trace + 0.5 * (own.rank * (1.0 + LOG_2PI) - chol.log_det)


@dataclass(frozen=True)
class SumCoordinates:
    """(P, m) as one vector whose length is that of a matrix and a vector in units of the first posterior.

    Parameters
    ----------
    form : SumForm
    unit : ndarray of shape (rank, rank)
        U with UᵀU the first precision.
    """

    form: SumForm
    unit: Array
    first: float = 1.0

    @classmethod
    def about(cls, form: SumForm, start: SumPlace) -> SumCoordinates:
        """In the units of a place."""
        return cls(form, cholesky(start.precision).factor)

    def evaluate(self, place: SumPlace) -> Reached[SumPlace] | None:
        return evaluate(self.form, place.m, place.precision, moving=False)

    def encode(self, place: SumPlace) -> tuple[Array, Array] | None:
        target = try_cholesky(place.precision_hat)
        if target is None:
            return None
        m_hat = place.m + target.solve(place.slope)
        return pack(self.unit, place.m, place.precision), pack(self.unit, m_hat, place.precision_hat)

    def decode(self, point: Array) -> Reached[SumPlace] | None:
        return evaluate(self.form, *unpack(self.unit, point))

    def move(self, place: SumPlace, length: float) -> Reached[SumPlace] | None:
        precision = place.precision + length * (place.precision_hat - place.precision)
        chol = try_cholesky(precision)
        if chol is None:
            return None
        # P_t = P + t(P̂ − P) and P_t m_t = Pm + t(P̂m + slope − Pm), so m_t = m + tP_t⁻¹ slope
        return evaluate(self.form, place.m + length * chol.solve(place.slope), precision)

    def newton(self, now: Reached[SumPlace]) -> None:
        return None

    def deviation(self, place: SumPlace) -> float:
        chol = cholesky(place.precision)
        # U⁻ᵀ slope and U⁻ᵀ(P̂ − P)U⁻¹ with UᵀU = P
        shift, share = chol.whiten(place.slope), symmetrise(place.precision_hat - place.precision)
        inner = chol.whiten(chol.whiten(share).T)
        return max(float(np.abs(part).max(initial=0.0)) for part in (shift, inner))


def pack(unit: Array, m: Array, precision: Array) -> Array:
    """U⁻ᵀPU⁻¹, by columns of the upper triangle, and Um."""
    inner = lapack.dsygst(precision, unit)[0]
    return np.concatenate([_weights(len(m)) * lapack.dtrttp(inner)[0], blas.dtrmv(unit, m)])


def unpack(unit: Array, point: Array) -> tuple[Array, Array]:
    """m and P of a packed vector."""
    dim = len(unit)
    inner = symmetrise(lapack.dtpttr(dim, point[:-dim] / _weights(dim))[0])
    half = blas.dtrmm(1.0, unit, inner, lower=0, trans_a=1)
    precision = blas.dtrmm(1.0, unit, half, lower=0, side=1, overwrite_b=1)
    return blas.dtrsv(unit, point[-dim:]), precision


@lru_cache(maxsize=4)
def _weights(dim: int) -> Array:
    """1 on the diagonal and √2 off it, where an entry of a symmetric matrix counts twice."""
    weights = np.full(dim * (dim + 1) // 2, np.sqrt(2.0))
    weights[np.cumsum(np.arange(1, dim + 1)) - 1] = 1.0
    weights.flags.writeable = False
    return weights


def first_place(form: SumForm, smooth: bool, start: Start | None) -> Reached[SumPlace] | None:
    """The posterior given; else the curvature near the mode, where there is one; else the sites' typical one."""
    inherited = None if start is None else _inherit(form, start)
    point = np.zeros(form.rank) if start is None else form.coordinates(start.mean)
    return inherited or (_expand_mode(form, point) if smooth else None) or _expand_centres(form)


def _inherit(form: SumForm, start: Start) -> Reached[SumPlace] | None:
    """The posterior given, with the present prior in the place of its own where both are Gaussian."""
    own = form.own
    form.coordinates(start.mean)  # its dimension is checked there
    found = exchange_prior(own.mean, own.whitening, start) if own.quadratic is None else None
    return place_of(form, start.density) if found is None else evaluate(form, *found)


def place_of(form: SumForm, density: Density) -> Reached[SumPlace] | None:
    """The mean and covariance of a density as a place; None where it is none."""
    found = whiten_density(form.own.mean, form.own.whitening, density)
    return None if found is None else evaluate(form, *found)


def _expand_mode(form: SumForm, first: Array) -> Reached[SumPlace] | None:
    rough = Rules(gradient_tol=NEAR, objective_tol=np.inf, max_iter=50)
    seen: SumForm | RoughForm = form if form.elsewhere is not None else RoughForm(form)
    mode = find_mode(seen, first, rough, "start", warn=False, measure=lambda at: deviations_from_mode(seen, at)).state
    curvature = seen.curvature(mode)
    many = form.elsewhere is None and form.rank >= BROAD
    stepped = _step_roughly(form, mode.u, curvature) if many else None
    return _narrowed(form, stepped or evaluate(form, mode.u, curvature))


def _step_roughly(form: SumForm, m: Array, precision: Array) -> Reached[SumPlace] | None:
    """Where natural-gradient steps of length one lead, in single precision; None where the bound falls on the way.

    A second one is worth its price where it leaves so little that one exact step ends the ascent.
    """
    highest, rows = -np.inf, sum(part.projections.shape[0] for part in form.here)
    for _ in range(2 if rows >= MANY * form.rank and form.rank >= WIDE else 1):
        chol = try_cholesky(precision)
        point = None if chol is None else form.rough_expectation(m, chol)
        if chol is None or point is None:
            return None
        before, highest = highest, point.value + _covariance_terms(form, chol)
        if not highest >= before:
            return None
        m, precision = point.u, form.rough_precision([-2.0 * log.d_var for log in point.expected])
    found = evaluate(form, m, precision)
    return found if found is not None and found.bound >= highest - SLACK * (1.0 + abs(highest)) else None


@dataclass(frozen=True)
class RoughForm:
    """A form in memory for a rough mode: P only where a step begins, to the digits that its direction needs."""

    form: SumForm
    known: deque[tuple[Any, Array]] = field(default_factory=lambda: deque(maxlen=2))

    def expand(self, u: Array, smoothing: float | None = None) -> Expansion:
        """The log joint about u; what is kept are the curvatures γ of the sites of each part."""
        own = self.form.own
        gammas: list[Array] = []
        value, gradient = own.log_gaussian(u), own.linear - own.times_quadratic(u)
        for part in self.form.here:
            values, first, second = part.sites.expansion(part.projections.times(u))
            value, gradient = value + float(values.sum()), gradient + part.projections.transposed_times(first)
            gammas.append(-second)
        return Expansion(u, value if np.isfinite(value) else -np.inf, gradient, gammas)

    def curvature(self, at: Expansion) -> Array:
        """Upper triangle of P = Λ̃ + H̃ᵀΓH̃."""
        for gammas, precision in self.known:
            if gammas is at.kept:
                return precision
        precision = self.form.rough_precision(at.kept)
        self.known.append((at.kept, precision))
        return precision

    def newton_step(self, at: Expansion) -> Array | None:
        """P⁻¹g; None where P is not definite."""
        chol = try_cholesky(self.curvature(at))
        return None if chol is None else chol.solve(at.gradient)

    def steady_step(self, at: Expansion) -> Array | None:
        return self.form.steady_step(at)


def _narrowed(form: SumForm, found: Reached[SumPlace] | None) -> Reached[SumPlace] | None:
    """A place, with less covariance where the bound is so steep that no step along its gradient can be represented.

    Exponential sites are flat on one side: the curvature at the mode leaves a Gaussian that reaches far up the other.
    """
    while found is not None and found.gradient > STEEP:
        narrower = evaluate(form, found.place.m, NARROWER * found.place.precision)
        if narrower is None or narrower.bound <= found.bound:
            return found
        found = narrower
    return found


def _expand_centres(form: SumForm) -> Reached[SumPlace] | None:
    centre = np.zeros(form.rank)
    return evaluate(form, centre, form.precision(form.sums(typical_terms, centre)))
