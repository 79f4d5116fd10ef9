"""What Gaussian KL leaves out to leading order: skew, and the errors of mean and variance that come with it.

At the optimum the slopes and curvatures of the sites, averaged over q = N(m, S), are those of the Gaussian. The rest
of a site is d (x³ − …)/6 + e (x⁴ − …)/24 in Hermite polynomials, d = ⟨ψ‴⟩ and e = ⟨ψ⁗⟩. With n data d is of the order
n^−½ and e of n⁻¹, in units of the posterior. With C = HSHᵀ the covariance of the sites' projections and A = SHᵀ the
cumulants of the exact posterior are

    third cumulant of gᵀw   Σ_n d_n (gᵀA)_n³,                                              of the order n^−½,
    covariance   S + ½ A [d dᵀ∘C∘C] Aᵀ,                                                     n⁻¹,
    mean         m + A [½ d∘δv + ⅙ e∘k],   δv the change of diag C, k_n = Σ_j d_j C_nj³,    n^−³⁄²,

and what follows is smaller by n⁻¹. Terms of lower order vanish, because Gaussian KL is stationary (Challis (2013),
eqs. 4.3.1–4.3.2, corrected).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from latlin.densities.gaussian import Gaussian
from latlin.inference.forms.projections import stacked_rows
from latlin.inference.forms.sites import Sites, site_curvature
from latlin.inference.model import LatentLinearModel
from latlin.numerics.arrays import Array

#: entries of the matrix of pairs of sites that are formed at a time, and sites at most
PAIRS = 2 * 10**6
MOST_SITES = 20_000


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


def correct_marginals(model: LatentLinearModel, density: Gaussian, rows: Any) -> CorrectedMarginals:
    """Marginals of the projections of `rows`, for the Gaussian KL optimum of a model."""
    H, sites = stacked_rows(model), Sites.of(model)
    H = H.toarray() if hasattr(H, "toarray") else np.asarray(H)
    if len(sites) > MOST_SITES:
        raise ValueError(f"the correction needs all pairs of sites, and {len(sites)} are more than {MOST_SITES}")
    here, asked = density.project(H), density.project(rows)
    rest = site_curvature(sites, here.mean, here.variance, sites.expected_log(here.mean, here.variance))
    # ∂/∂v = ½∂²/∂m²
    d, e = 2.0 * rest.mv, 4.0 * rest.vv
    A = density.covariance() @ H.T
    change, cubes = _pair_sums(H, A, d)
    gain = A @ change
    spread = np.einsum("nd,de,ne->n", H, gain, H, optimize=True)
    shift = A @ (0.5 * d * spread + e * cubes / 6.0)
    rows = rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows, float)
    variance = asked.variance + np.einsum("nd,de,ne->n", rows, gain, rows, optimize=True)
    third = (rows @ A) ** 3 @ d
    return CorrectedMarginals(asked.mean + rows @ shift, variance, third / variance**1.5)


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
