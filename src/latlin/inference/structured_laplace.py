"""Laplace approximations of large models: the mode by products alone, and a covariance with a simple structure.

At the mode w* the log posterior is close to log p(w*) − ½δᵀPδ, P = Λ + HᵀΓH. Of all Gaussians of a given structure, the
one that is closest to that parabola's in KL(q‖p) has the mean w* and maximises −½tr(PS) + ½ log det S. For a diagonal S
it is S_dd = 1/P_dd; others are Gaussian KL fits with the sites replaced by parabolas (Challis (2013), §3.5 and §4.3).
The evidence is the value that the parabola's bound has there.
"""

from __future__ import annotations

import os
import time

import numpy as np

from latlin.densities.gaussian import Gaussian
from latlin.densities.structured.covariance import StructuredCovariance
from latlin.densities.structured.diagonal import Diagonal
from latlin.densities.whitening import DiagonalWhitening
from latlin.inference.engine import checkpoint_for
from latlin.inference.forms.products import Point, ProductForm, find_mode_by_products, product_form
from latlin.inference.model import LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.numerics.ascent import Rules
from latlin.potentials.gaussian import Gaussian as GaussianSites

#: smallest curvature of a site's parabola
FLOOR = 1e-12


def structured_laplace(
    engine: object,
    covariance: str,
    rank: int | None,
    rules: Rules,
    model: LatentLinearModel,
    start: Posterior | None,
    verbose: bool,
    checkpoint: str | os.PathLike[str] | None,
) -> Posterior:
    """The Laplace approximation with a diagonal or a low-rank covariance."""
    started, form = time.perf_counter(), product_form(model)
    first = None if start is None else start.mean
    ascent = find_mode_by_products(form, first, rules, "Laplace", verbose, checkpoint_for(checkpoint, model, engine))
    fit = _diagonal if covariance == "diagonal" else _low_rank
    density, log_evidence = fit(form, ascent.state, model, rank)
    return Posterior(
        model=model,
        density=density,
        log_evidence=log_evidence,
        evidence_kind="approximation",
        engine="laplace",
        converged=ascent.converged,
        n_iter=ascent.n_iter,
        trace=ascent.trace,
        elapsed=time.perf_counter() - started,
        message=f"{ascent.message}; the covariance is {covariance}",
    )


def _diagonal(form: ProductForm, mode: Point, model: LatentLinearModel, rank: int | None) -> tuple[Gaussian, float]:
    precision = form.diagonal(-mode.curvature)
    if not np.all(precision > 0.0):
        raise ValueError("the curvature vanishes or has the wrong sign at the mode: use engine 'gkl' or 'ep'")
    ones, scale = DiagonalWhitening(np.ones(model.dim)), 1.0 / np.sqrt(precision)
    density = Gaussian(form.prior.origin + mode.deviation, StructuredCovariance(ones, Diagonal(model.dim), scale))
    return density, mode.objective + 0.5 * float(np.sum(LOG_2PI - np.log(precision)))


def _low_rank(form: ProductForm, mode: Point, model: LatentLinearModel, rank: int | None) -> tuple[Gaussian, float]:
    """A fit to the parabolas, whose heights are put right afterwards."""
    from latlin.inference.gaussian_kl.engine import GaussianKL  # which itself starts at modes

    slope = form.sites.derivatives(mode.x).first
    gamma = np.maximum(-mode.curvature, FLOOR)
    # ψ(x*) + ψ′(x − x*) − ½γ(x − x*)² has its top, ψ(x*) + ½ψ′²/γ, at x* + ψ′/γ
    top = mode.x + slope / gamma
    heights = form.sites.log_density(mode.x) + 0.5 * slope**2 / gamma + 0.5 * (LOG_2PI - np.log(gamma))
    at = _split(model, top + form.rows @ form.prior.origin)
    scales = _split(model, 1.0 / np.sqrt(gamma))
    parabolas = [SiteFactor(f.H, GaussianSites(t, s)) for f, t, s in zip(model.sites, at, scales, strict=True)]
    fit = GaussianKL(covariance="low-rank", rank=rank).run(model.among([*model.gaussians, *parabolas]))
    density = fit.density
    assert isinstance(density, Gaussian)  # a structured fit is one
    return density, fit.log_evidence + float(heights.sum())


def _split(model: LatentLinearModel, values: Array) -> list[Array]:
    """One array per site factor."""
    return np.split(values, np.cumsum([model.site_count(factor) for factor in model.sites])[:-1])
