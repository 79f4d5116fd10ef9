"""The posterior of a linear model with Gaussian noise and a Gaussian prior, in closed form.

In coordinates u whitened by the prior, w = μ + Lu, the rows are A = W^{½}HL/σ, the residuals c = W^{½}(y − o − Hμ)/σ:

    P = I + AᵀA,   mean P⁻¹Aᵀc,   log Z = −½(Σ weight log 2πσ² + log det P + cᵀc − cᵀA P⁻¹Aᵀc)

Challis (2013), §2.2.1. Singular values of A give all of it without squaring its condition, which matters when the
noise is small; large rows go by a factorisation of P.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import sparse
from scipy.linalg import svd

from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import SubspaceCovariance
from latlin.inference.approximation import Density
from latlin.inference.forms.gaussian_part import gaussian_part
from latlin.inference.forms.site_form import site_form
from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.inference.model import LatentLinearModel
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import Cholesky
from latlin.numerics.stored import storable_by_arguments

#: entries of the rows up to which singular values are taken
DECOMPOSED = 2_000_000
Solved = tuple[Density, SiteParameters, float]


@storable_by_arguments
@dataclass(frozen=True)
class Exact:
    """The exact posterior of a model of one Gaussian prior and one block of Gaussian sites."""

    name: ClassVar[str] = "exact"

    def run(
        self,
        model: LatentLinearModel,
        *,
        start: Posterior | None = None,
        verbose: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Posterior:
        """The posterior; there is nothing to start from, to show or to resume."""
        started = time.perf_counter()
        large = np.prod(model.sites[0].H.shape, dtype=float) > DECOMPOSED
        density, parameters, evidence = _factorised(model) if large else _decomposed(model)
        return Posterior(
            model=model,
            density=density,
            log_evidence=evidence,
            evidence_kind="exact",
            engine=self.name,
            converged=True,
            n_iter=1,
            trace=np.array([evidence]),
            elapsed=time.perf_counter() - started,
            message="every factor is Gaussian: the posterior in closed form",
            sites=parameters,
        )


def _decomposed(model: LatentLinearModel) -> Solved:
    part, sites = gaussian_part(model), Sites.of(model)
    assert part.whitening is not None  # the prior is proper
    rows = model.sites[0].H
    parameters, at_mean = _quadratic(sites, rows @ part.mean)
    root = np.sqrt(parameters.gamma)
    residual = parameters.nu / root
    dense = rows.toarray() if sparse.issparse(rows) else rows
    u, singular, vt = svd(root[:, None] * part.whitening.rows(dense), full_matrices=False)
    inside = u.T @ residual
    grown = 1.0 + singular**2
    mean = part.mean + part.whitening.apply(vt.T @ (singular * inside / grown))
    inner = Cholesky(np.asfortranarray(np.diag(np.sqrt(grown))), 0.0)
    structure = SubspaceCovariance(part.whitening, np.ascontiguousarray(vt.T), inner)
    # at_mean = Σ weight log N(y | Hμ + o, σ²) holds −½cᵀc
    gained = float(np.sum((singular * inside) ** 2 / grown) - np.sum(np.log(grown)))
    return Gaussian(mean, structure), parameters, at_mean + 0.5 * gained


def _factorised(model: LatentLinearModel) -> Solved:
    form = site_form(model)
    parameters, at_mean = _quadratic(form.sites, np.zeros(len(form.sites)))
    solution = form.solve(parameters)
    if solution is None:
        raise ValueError("the precision of the posterior is not positive definite: rescale the features")
    return form.density(solution), parameters, form.log_integral(solution) + at_mean


def _quadratic(sites: Sites, x: Array) -> tuple[SiteParameters, float]:
    """Gaussian sites about x: log φ(x + t) = ψ(x) + νt − ½γt², and Σ ψ(x)."""
    slope, curvature, _ = sites.derivatives(np.asarray(x))
    return SiteParameters(-curvature, slope), float(np.sum(sites.log_density(x)))
