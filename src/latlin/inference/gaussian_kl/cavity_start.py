"""Where an ascent by sites starts in many dimensions: as if the rows lay in no particular direction.

The curvature at the mode is far from the optimum where rows are not many more than coordinates: the mode lies far out,
and its Gaussian is too narrow. If the rows pointed nowhere in particular, the variance of a projection would follow
from its length r_n = |h_n|² and one number τ, the mean variance of a coordinate without the site (Opper and Winther,
2001, whose cavity fields these are):

    s_n = τr_n/(1 + γ_n τr_n),   1/τ = 1 + (1/D) Σ_n γ_n r_n/(1 + γ_n τr_n),   γ_n = −2 ∂⟨ψ_n⟩/∂s_n².

With these variances the bound is concave in the mean alone. It is climbed by Newton steps whose linear systems are
solved roughly by conjugate gradients: products with the rows, N·D each, and no N·D² at all. The result is a place to
start from, no approximation that is relied upon.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from latlin.inference.forms.projections import Projections
from latlin.inference.forms.site_family import SiteForm
from latlin.inference.forms.sites import SiteParameters
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import dot
from latlin.potentials.base import ExpectedLog

#: coordinates from which on this start is cheaper than the steps that it saves
BROAD = 64
#: Newton steps at most, their accuracy, and products in each
STEPS, ACCURACY, PRODUCTS = 25, 0.2, 12
#: nat: a Newton step that gains less is the last
ENOUGH = 0.3
#: how well τ is solved for, in how many steps at most
CLOSE, ROUNDS = 1e-3, 50
#: most halvings of a Newton step
HALVINGS = 10
#: smallest γ: expectations of flat sites may give less than nothing by rounding
LEAST = 1e-12
BLOCK = 1024


class Cavity(NamedTuple):
    """A mean u, its projections x, the variances s that are taken for granted, and ⟨ψ⟩ with its slopes there."""

    u: Array
    x: Array
    s: Array
    expected: ExpectedLog

    @property
    def gamma(self) -> Array:
        return np.maximum(-2.0 * self.expected.d_var, LEAST)


def serves(form: SiteForm) -> bool:
    """Dense rows in many whitened coordinates, and sites that are smooth and log-concave."""
    plain = type(form) is SiteForm and form.quadratic is None and form.sites.extra is None
    smooth = form.sites.log_concave and all(p.smooth for p in form.sites.potentials)
    return plain and smooth and form.rank >= BROAD


def cavity_start(form: SiteForm) -> SiteParameters | None:
    """Site parameters near the optimum, or None where an expectation is not finite on the way."""
    length, tau, u = _squared_lengths(form.projections), 1.0, form.first_coordinates()
    now = _at(form, u, form.projections.times(u), length)
    for _ in range(STEPS):
        if now is None:
            return None
        tau = _mean_variance(tau, now.gamma, length, form.rank)
        now = _at(form, now.u, now.x, tau * length / (1.0 + now.gamma * tau * length))
        if now is None:
            return None
        before = _objective(form, now)
        now = _newton(form, now, before)
        if now is not None and _objective(form, now) - before < ENOUGH:
            break
    return None if now is None else SiteParameters(now.gamma, now.expected.d_mean + now.gamma * now.x)


def _squared_lengths(rows: Projections) -> Array:
    n = rows.shape[0]
    spans = [slice(first, min(first + BLOCK, n)) for first in range(0, n, BLOCK)]
    return np.concatenate([np.einsum("nd,nd->n", block, block) for block in map(rows.block, spans)])


def _at(form: SiteForm, u: Array, x: Array, s: Array) -> Cavity | None:
    expected = form.sites.finite_expected_log(x, s)
    return None if expected is None else Cavity(u, x, s, expected)


def _objective(form: SiteForm, at: Cavity) -> float:
    """The bound as a function of the mean, up to a constant."""
    return float(at.expected.value.sum()) + dot(form.linear, at.u) - 0.5 * dot(at.u, at.u)


def _mean_variance(tau: float, gamma: Array, length: Array, dim: int) -> float:
    """τ of these curvatures, by repeated substitution."""
    for _ in range(ROUNDS):
        before, tau = tau, 1.0 / (1.0 + float(np.sum(length * gamma / (1.0 + gamma * tau * length))) / dim)
        if abs(tau - before) < CLOSE * tau:
            break
    return tau


def _newton(form: SiteForm, now: Cavity, objective: float) -> Cavity | None:
    """A Newton step in the mean, halved until the objective does not fall."""
    rows, gamma = form.projections, now.gamma
    gradient = form.linear - now.u + rows.transposed_times(now.expected.d_mean)

    def times(p: Array) -> Array:
        return p + rows.transposed_times(gamma * rows.times(p))

    hessian = LinearOperator((form.rank, form.rank), matvec=times, dtype=float)
    step, _ = cg(hessian, gradient, rtol=ACCURACY, atol=0.0, maxiter=PRODUCTS)
    along = rows.times(step)
    for halving in range(HALVINGS):
        share = 0.5**halving
        moved = _at(form, now.u + share * step, now.x + share * along, now.s)
        if moved is not None and _objective(form, moved) >= objective:
            return moved
    return now
