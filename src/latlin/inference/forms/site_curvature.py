"""Second derivatives of the sites' expected logs E(m, v) = ⟨ψ(x)⟩ under N(x | m, v).

E solves the heat equation ∂E/∂v = ½ ∂²E/∂m², so everything follows from derivatives in m: E_mm = 2E_v exactly, and with
f = E_m, f′ = 2E_v known at m and m ± h, E_mv = ½f″ and E_vv = ¼f‴ by compact differences (errors of order h⁴).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latlin.inference.forms.sites import Sites
from latlin.numerics.arrays import Array
from latlin.potentials.base import ExpectedLog

#: h in units of the length over which E varies
STEP = 0.05


class SiteCurvature(NamedTuple):
    """∂²E/∂m², ∂²E/∂m∂v and ∂²E/∂v² of every site."""

    mm: Array
    mv: Array
    vv: Array


def site_curvature(sites: Sites, x: Array, variance: Array, here: ExpectedLog) -> SiteCurvature:
    """Second derivatives at projected moments whose `expected_log` is `here`."""
    h = STEP * _lengths(sites, variance)
    up, down = sites.expected_log(x + h, variance), sites.expected_log(x - h, variance)
    # f″ = 2(f₊ − 2f + f₋)/h² − (f′₊ − f′₋)/2h
    second = 2.0 * (up.d_mean - 2.0 * here.d_mean + down.d_mean) / h**2 - (up.d_var - down.d_var) / h
    # f‴ = 15(f₊ − f₋)/2h³ − 3(f′₊ + 8f′ + f′₋)/2h²
    third = 7.5 * (up.d_mean - down.d_mean) / h**3 - 3.0 * (up.d_var + 8.0 * here.d_var + down.d_var) / h**2
    return SiteCurvature(2.0 * here.d_var, 0.5 * second, 0.25 * third)


def _lengths(sites: Sites, variance: Array) -> Array:
    """Over what length E bends: that of the Gaussian, and of ψ itself where it is smooth or the Gaussian a point."""
    lengths = variance.copy()
    for span, potential in sites.blocks:
        own = np.asarray(potential.regions()[0][1]) ** 2
        lengths[span] += own if potential.smooth else np.where(variance[span] > 0.0, 0.0, own)
    return np.sqrt(lengths)
