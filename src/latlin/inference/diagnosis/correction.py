"""What one Gaussian leaves out to leading order: skew, and the errors of mean and variance that come with it.

At the optimum the slopes and curvatures of the sites, averaged over q = N(m, S), are those of the Gaussian. The rest
of a site is d (x³ − …)/6 + e (x⁴ − …)/24 in Hermite polynomials, d = ⟨ψ‴⟩ and e = ⟨ψ⁗⟩. With n data d is of the order
n^−½ and e of n⁻¹, in units of the posterior. With C = HSHᵀ the covariance of the sites' projections and A = SHᵀ the
cumulants of the exact posterior are

    third cumulant of gᵀw   Σ_n d_n (gᵀA)_n³,                                              of the order n^−½,
    covariance   S + ½ A [d dᵀ∘C∘C] Aᵀ,                                                     n⁻¹,
    mean         m + A [½ d∘δv + ⅙ e∘k],   δv the change of diag C, k_n = Σ_j d_j C_nj³,    n^−³⁄²,

and what follows is smaller by n⁻¹. Terms of lower order vanish, because Gaussian KL is stationary (Challis (2013),
eqs. 4.3.1–4.3.2, corrected).

Expectation propagation matches the tilted moments of every site, so that what a site does to itself is exact. With the
third and fourth cumulants k₃ and k₄ of its tilted density, d = k₃/v³ and e = k₄/v⁴, and only terms of different sites
are left (Opper, Paquet and Winther 2013): the sums are the same without their diagonals. Most of what a Gaussian
leaves out is such: a single site that is far from a parabola where the data are few. So Gaussian KL with log-concave
sites goes on to the fixed point of expectation propagation, some sweeps from its own stand-ins, and is corrected there.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from latlin.densities.gaussian import Gaussian
from latlin.inference.ep.engine import ExpectationPropagation
from latlin.inference.forms.prior import reference_point
from latlin.inference.forms.projections import stacked_rows, stacked_sites
from latlin.inference.forms.sites import SiteParameters, Sites, cavity, site_curvature
from latlin.inference.model import LatentLinearModel
from latlin.numerics.alerts import quiet
from latlin.numerics.arrays import Array

if TYPE_CHECKING:
    from latlin.inference.posterior import Posterior

#: entries of the matrix of pairs of sites that are formed at a time (so few that a cache holds them), and sites at most
PAIRS = 10**5
MOST_SITES = 20_000
#: of one site and three coordinates
MOST_PRODUCTS = 1e11
#: sweeps from the stand-ins of Gaussian KL, and the mismatch of moments at their end: 2e-5 of a standard deviation
SWEEPS, MISMATCH = 30, 1e-4
#: distance of cavities whose moments are compared, in their standard deviations
STEP = 0.1


@dataclass(frozen=True)
class CorrectedMarginals:
    """Means, variances and skewness of projections, one order beyond a Gaussian.

    Attributes
    ----------
    mean, variance, skewness : ndarray of shape (n,)
    """

    mean: Array
    variance: Array
    skewness: Array

    @property
    def std(self) -> Array:
        return np.sqrt(self.variance)

    def quantile(self, q: ArrayLike) -> Array:
        """Quantiles from the three moments (Cornish and Fisher 1938); q broadcasts against the projections."""
        z, skew = ndtri(np.asarray(q, float)), self.skewness
        bent = z + (z * z - 1.0) * skew / 6.0 - (2.0 * z**3 - 5.0 * z) * skew**2 / 36.0
        return self.mean + self.std * bent


def propagate(model: LatentLinearModel, optimum: Posterior) -> Posterior | None:
    """The fixed point of expectation propagation next to a Gaussian KL optimum; None where sweeps may not find it."""
    sites = stacked_sites(model)
    if optimum.sites is None or sites.extra is not None or not sites.log_concave or sites.gaussian:
        return None
    with quiet(), suppress(ValueError, FloatingPointError):
        found = ExpectationPropagation(tol=MISMATCH, sweeps=SWEEPS, double_loop=0).run(model, start=optimum)
        return found if found.converged else None
    return None


def correct_marginals(
    model: LatentLinearModel, density: Gaussian, rows: Any, propagated: SiteParameters | None = None
) -> CorrectedMarginals:
    """Marginals of the projections of `rows`, for the Gaussian KL optimum of a model.

    With `propagated`, the stand-ins of expectation propagation, for its Gaussian.
    """
    H, sites = stacked_rows(model), stacked_sites(model)
    H = H.toarray() if hasattr(H, "toarray") else np.asarray(H)
    if len(sites) > MOST_SITES and len(sites) * model.dim**3 > MOST_PRODUCTS:
        raise ValueError(
            f"the correction needs all pairs of sites or all triples of coordinates, and {len(sites)} sites in "
            f"{model.dim} dimensions have too many of both"
        )
    here, wanted = density.project(H), density.project(rows)
    if propagated is None:
        rest = site_curvature(sites, here.mean, here.variance, sites.expected_log(here.mean, here.variance))
        # ∂/∂v = ½∂²/∂m²
        d, e = 2.0 * rest.mv, 4.0 * rest.vv
    else:
        d, e = _tilted_rest(sites, propagated, here.mean, here.variance, H @ reference_point(model))
    A = density.covariance() @ H.T
    change, cubes = _pair_sums(H, A, d)
    own = np.einsum("nd,dn->n", H, A)
    if propagated is not None:
        change -= (0.5 * d * d * own**2)[:, None] * A.T
        cubes -= d * own**3
    gain = A @ change
    spread = np.einsum("nd,nd->n", H @ gain, H)
    if propagated is not None:
        # without pairs that hold the site itself
        spread -= 2.0 * own * np.einsum("nd,nd->n", change, H)
    shift = A @ (0.5 * d * spread + e * cubes / 6.0)
    rows = rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows, float)
    variance = wanted.variance + np.einsum("nd,nd->n", rows @ gain, rows)
    third = (rows @ A) ** 3 @ d
    return CorrectedMarginals(wanted.mean + rows @ shift, variance, third / variance**1.5)


def _tilted_rest(
    sites: Sites, propagated: SiteParameters, mean: Array, variance: Array, centre: Array
) -> tuple[Array, Array]:
    """k₃/v³ and k₄/v⁴ of the tilted densities; zero where a cavity is none."""
    proper, m, v = cavity(*propagated, mean - centre, variance, power=1.0)
    m, step = m + centre, STEP * np.sqrt(v)
    # log Ẑ generates the cumulants: in the cavity's mean m, k₂ = v ∂m̂/∂m, k₃ = v² ∂²m̂/∂m² and k₄ = v³ ∂³m̂/∂m³, by
    # differences of m̂ and its slope to h⁴
    below, here, above = (sites.tilted_moments(m + k * step, v, 1.0) for k in (-1, 0, 1))
    third = 2.0 * v**2 * (above.mean - 2.0 * here.mean + below.mean) / step**2
    third -= 0.5 * v * (above.variance - below.variance) / step
    fourth = 7.5 * v**3 * (above.mean - below.mean) / step**3
    fourth -= 1.5 * v**2 * (above.variance + 8.0 * here.variance + below.variance) / step**2
    return np.where(proper, third / here.variance**3, 0.0), np.where(proper, fourth / here.variance**4, 0.0)


def _pair_sums(H: Array, A: Array, d: Array) -> tuple[Array, Array]:
    """½[ddᵀ∘C∘C]Aᵀ of shape (sites, dim), and Σ_j d_j C_nj³, some rows at a time.

    With K = Σ_j d_j A_j ⊗ A_j ⊗ A_j, which says all of them in few dimensions, Σ_j d_j C_nj² A_j = K(h_n, h_n).
    """
    n, dim = H.shape
    shared, weighted = np.empty_like(H), d[:, None] * A.T
    count = max(1, PAIRS // max(min(n, dim * dim), 1))
    parts = [slice(start, start + count) for start in range(0, n, count)]
    if dim * dim < n:
        third = np.zeros((dim * dim, dim))
        for part in parts:
            third += _squares(A.T[part]).T @ weighted[part]
        for part in parts:
            shared[part] = _squares(H[part]) @ third
    else:
        for part in parts:
            C = H[part] @ A
            shared[part] = np.square(C, out=C) @ weighted
    return 0.5 * d[:, None] * shared, np.einsum("nd,nd->n", H, shared)


def _squares(rows: Array) -> Array:
    """h ⊗ h of every row."""
    return (rows[:, :, None] * rows[:, None, :]).reshape(len(rows), -1)
