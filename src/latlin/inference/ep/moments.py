"""What expectation propagation matches: moments of each tilted density with those of the approximation.

    cavity q₋ₙ ∝ q / t_n^η,   tilted ∝ q₋ₙ φ_n^η,   t_n = s_n exp(−½γ_n x² + ν_n x)

Challis (2013), eqs. 3.6.1–3.6.5, 3.6.4 corrected, with the power η of fractional EP. Every formula is in the
site's precision γ and pull ν; its mean ν/γ and variance 1/γ, which diverge as γ → 0, appear nowhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.inference.ep.kernels import FIXED, PROPER
from latlin.inference.forms.site_form import SiteForm, Solution
from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.numerics.arrays import Array


class State(NamedTuple):
    """An approximation in site form, the parameters its sites ask for, and how far it is from the fixed point."""

    gamma: Array
    nu: Array
    factor: Array  # what the site form keeps of the precision
    u: Array
    gamma_hat: Array
    nu_hat: Array
    log_z: float
    residual: float  # largest mismatch of mean or variance, in units of the marginals
    improper: int  # cavities that are no density
    length: float  # of the next step


class Matched(NamedTuple):
    """Cavities and the tilted moments they give, one a site."""

    proper: NDArray[np.bool_]
    mean: Array
    variance: Array
    log_z: Array
    tilted_mean: Array
    tilted_variance: Array


def cavity(gamma: Array, nu: Array, x: Array, variance: Array, power: float) -> tuple[NDArray[np.bool_], Array, Array]:
    """Which cavities are densities, and their means and variances (those of the marginals where they are not)."""
    # 1/v₋ = 1/v − ηγ, m₋/v₋ = m/v − ην
    share = 1.0 - power * gamma * variance
    proper = share > PROPER
    share = np.where(proper, share, 1.0)
    pull = np.where(proper, power * nu * variance, 0.0)
    return proper, (x - pull) / share, variance / share


def match(sites: Sites, now: SiteParameters, x: Array, variance: Array, power: float) -> Matched:
    """Tilted moments at the cavities of a Gaussian with the given marginals."""
    proper, mean, var = cavity(*now, x, variance, power)
    tilted = sites.tilted_moments(mean, var, power)
    return Matched(proper, mean, var, *tilted)


def evaluate(form: SiteForm, parameters: SiteParameters, power: float, length: float) -> State | None:
    """The state at given site parameters, or None where they give no proper Gaussian or no finite evidence."""
    solution = form.solve(parameters)
    if solution is None:
        return None
    variance = form.variances(solution)
    found = match(form.sites, parameters, solution.x, variance, power)
    target = matching_parameters(found, parameters, power)
    log_z = log_evidence(form, solution, variance, found, power)
    if not np.isfinite(log_z):
        return None
    improper = int((~found.proper).sum())
    residual = np.inf if improper else _mismatch(found, solution.x, variance)
    return State(*parameters, form.kept(solution), solution.u, *target, log_z, residual, improper, length)


def matching_parameters(found: Matched, now: SiteParameters, power: float) -> SiteParameters:
    """The site parameters with which the approximation has the tilted moments; as they are at improper cavities."""
    usable = found.proper & (found.tilted_variance > FIXED) & (found.variance > FIXED)
    v_in, v_out = (np.where(usable, v, 1.0) for v in (found.tilted_variance, found.variance))
    # ηγ = 1/v̂ − 1/v₋,  ην = m̂/v̂ − m₋/v₋
    gamma = (1.0 / v_in - 1.0 / v_out) / power
    nu = (found.tilted_mean - found.mean) / (v_in * power) + found.mean * gamma
    return SiteParameters(np.where(usable, gamma, now.gamma), np.where(usable, nu, now.nu))


def _mismatch(found: Matched, x: Array, variance: Array) -> float:
    some = variance > FIXED
    spread = np.where(some, variance, 1.0)
    means = np.abs(found.tilted_mean - x) / np.sqrt(spread)
    variances = np.abs(found.tilted_variance - variance) / spread
    return float(np.max(np.where(some, np.maximum(means, variances), 0.0), initial=0.0))


def log_evidence(form: SiteForm, solution: Solution, variance: Array, found: Matched, power: float) -> float:
    """log Z_EP = log ∫ Gaussian factors · ∏ t_n with log s_n = (log Ẑ_n − log C_n)/η.

    C_n = ∫ q₋ₙ exp(−½ηγx² + ηνx) is written with κ = v₋⁻¹v, which is 1 − ηγv:
    log C_n = ½ log κ + ½(2κm₋ην + η²ν²v − κm₋²ηγ).
    """
    gamma, nu = solution.parameters
    kappa = np.where(found.proper, 1.0 - power * gamma * variance, 1.0)
    pull = power * nu
    log_c = 0.5 * np.log(kappa) + found.mean * kappa * (pull - 0.5 * found.mean * power * gamma)
    log_c += 0.5 * pull**2 * variance
    log_scale = (found.log_z - log_c) / power
    if not found.proper.all():
        log_scale = np.where(found.proper, log_scale, _mean_log_scale(form.sites, solution, variance))
    return form.log_integral(solution) + float(log_scale.sum())


def _mean_log_scale(sites: Sites, solution: Solution, variance: Array) -> Array:
    """The limit η → 0 of log s_n, ⟨ψ + ½γx² − νx⟩, which needs no cavity."""
    gamma, nu = solution.parameters
    x = solution.x
    return sites.expected_log(x, variance).value + 0.5 * gamma * (x**2 + variance) - nu * x
