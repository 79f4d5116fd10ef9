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
are left (Opper, Paquet and Winther 2013): the sums are the same without their diagonals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from latlin.densities.gaussian import Gaussian
from latlin.inference.forms.prior import reference_point
from latlin.inference.forms.projections import stacked_rows, stacked_sites
from latlin.inference.forms.sites import SiteParameters, Sites, cavity, site_curvature
from latlin.inference.model import LatentLinearModel
from latlin.numerics.arrays import Array

#: entries of the matrix of pairs of sites that are formed at a time, and sites at most
PAIRS = 2 * 10**6
MOST_SITES = 20_000
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


def correct_marginals(
    model: LatentLinearModel, density: Gaussian, rows: Any, propagated: SiteParameters | None = None
) -> CorrectedMarginals:
    """Marginals of the projections of `rows`, for the Gaussian KL optimum of a model.

    With `propagated`, the stand-ins of expectation propagation, for its Gaussian.
    """
    H, sites = stacked_rows(model), stacked_sites(model)
    H = H.toarray() if hasattr(H, "toarray") else np.asarray(H)
    if len(sites) > MOST_SITES:
        raise ValueError(f"the correction needs all pairs of sites, and {len(sites)} are more than {MOST_SITES}")
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
    spread = np.einsum("nd,de,ne->n", H, gain, H, optimize=True)
    if propagated is not None:
        # without pairs that hold the site itself
        spread -= 2.0 * own * np.einsum("nd,nd->n", change, H)
    shift = A @ (0.5 * d * spread + e * cubes / 6.0)
    rows = rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows, float)
    variance = wanted.variance + np.einsum("nd,de,ne->n", rows, gain, rows, optimize=True)
    third = (rows @ A) ** 3 @ d
    return CorrectedMarginals(wanted.mean + rows @ shift, variance, third / variance**1.5)


def _tilted_rest(
    sites: Sites, propagated: SiteParameters, mean: Array, variance: Array, centre: Array
) -> tuple[Array, Array]:
    """k₃/v³ and k₄/v⁴ of the tilted densities; zero where a cavity is none."""
    proper, m, v = cavity(*propagated, mean - centre, variance, power=1.0)
    m, step = m + centre, STEP * np.sqrt(v)
    # log Ẑ generates the cumulants: k₃ = v ∂v̂/∂m and k₄ = v² ∂²v̂/∂m² in the cavity's mean m, by differences to h⁴
    far, near, here, after, beyond = (sites.tilted_moments(m + k * step, v, 1.0).variance for k in range(-2, 3))
    third = v * (8.0 * (after - near) - (beyond - far)) / (12.0 * step)
    fourth = v**2 * (16.0 * (after + near) - (beyond + far) - 30.0 * here) / (12.0 * step**2)
    return np.where(proper, third / here**3, 0.0), np.where(proper, fourth / here**4, 0.0)


def _pair_sums(H: Array, A: Array, d: Array) -> tuple[Array, Array]:
    """½[ddᵀ∘C∘C]Aᵀ of shape (sites, dim), and Σ_j d_j C_nj³, some rows of C at a time."""
    count = max(1, PAIRS // max(len(d), 1))
    change, cubes, weighted = np.empty_like(H), np.empty_like(d), d[:, None] * A.T
    for start in range(0, len(d), count):
        part = slice(start, start + count)
        C = H[part] @ A
        square = C * C
        change[part] = 0.5 * d[part, None] * (square @ weighted)
        square *= C
        cubes[part] = square @ d
    return change, cubes
