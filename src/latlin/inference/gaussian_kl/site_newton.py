"""Newton's step on the site parameters of a Gaussian KL optimum, where the sites' joint covariance S is at hand.

At the optimum γ = γ̂(x, v) and ν = ν̂(x, v) (Challis (2013), eq. 4.3.1), and the marginals x, v answer to changes of
the parameters through S alone:

    dx = Sη,   dv = −(S∘S)dγ,   η = dν − x∘dγ.

With E(x, v) = ⟨ψ⟩ and E_xx = −γ̂ the linearised conditions are

    dγ = (γ̂ − γ) − 2E_xv∘dx − 2E_vv∘dv,   η = (E_x − ν + γ∘x) + E_xv∘dv + (γ − γ̂)∘dx,

solved by a few Krylov steps of N² each, where a new S costs N³.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas
from scipy.sparse.linalg import LinearOperator, gmres

from latlin.inference.forms.site_curvature import site_curvature
from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.numerics.arrays import Array
from latlin.potentials.base import ExpectedLog

#: how well the linear system is solved, and in how many steps at most
ACCURACY, STEPS = 1e-2, 30


def newton_parameters(
    sites: Sites, covariance: Array, now: SiteParameters, x: Array, variance: Array, expected: ExpectedLog
) -> SiteParameters | None:
    """Where Newton's step leads, or None where the linear system is not solved.

    Parameters
    ----------
    covariance : ndarray of shape (n_sites, n_sites)
        S, Fortran-ordered; its upper triangle is used.
    now : SiteParameters
        γ and ν.
    x, variance : ndarray of shape (n_sites,)
        The marginals there.
    expected : ExpectedLog
        Of the sites there.
    """
    curvature = site_curvature(sites, x, variance, expected)
    squares, n = covariance**2, len(x)
    # γ − γ̂
    excess = now.gamma + 2.0 * expected.d_var

    def system(change: Array) -> Array:
        d_gamma, eta = change[:n], change[n:]
        dx, dv = blas.dsymv(1.0, covariance, eta), -blas.dsymv(1.0, squares, d_gamma)
        by_gamma = d_gamma + 2.0 * (curvature.mv * dx + curvature.vv * dv)
        return np.concatenate([by_gamma, eta - curvature.mv * dv - excess * dx])

    residual = np.concatenate([-excess, expected.d_mean - now.nu + now.gamma * x])
    operator = LinearOperator((2 * n, 2 * n), matvec=system, dtype=float)
    change, failed = gmres(operator, residual, rtol=ACCURACY, atol=0.0, restart=STEPS, maxiter=1)
    if failed or not np.all(np.isfinite(change)):
        return None
    d_gamma, eta = change[:n], change[n:]
    return SiteParameters(now.gamma + d_gamma, now.nu + eta + x * d_gamma)
