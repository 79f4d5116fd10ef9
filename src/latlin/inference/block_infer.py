"""Engines on models of blocks: MAP, Laplace and Gaussian KL by sums over rows.

The posterior is the one that the engine finds in memory, to its tolerance; only the steps on the way differ where they
would keep a number a site. Nothing but sums travels (002_71af9439e55c646f §4.6.2).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from latlin.densities.gaussian import Gaussian
from latlin.densities.point import PointMass
from latlin.densities.precision import PrecisionCovariance
from latlin.densities.structured.covariance import StructuredCovariance
from latlin.inference import gaussian_kl, laplace
from latlin.inference import map as modes
from latlin.inference.approximation import Density, EvidenceKind
from latlin.inference.auto import FULL, Auto
from latlin.inference.block_form import BlockForm, block_form, typical_terms
from latlin.inference.block_full import BlockState, block_state, maximise_block_bound
from latlin.inference.block_kinks import find_kinked_block_mode
from latlin.inference.block_model import RUNS, BlockModel
from latlin.inference.block_newton import BlockMode, distance, find_block_mode
from latlin.inference.block_structured import BlockClimber, typical_block_scale
from latlin.inference.engine import Engine, fingerprint
from latlin.inference.gaussian_kl import GaussianKL
from latlin.inference.gaussian_kl_subspace import SubspacePlan
from latlin.inference.laplace import Laplace
from latlin.inference.map import MAP
from latlin.inference.posterior import Posterior
from latlin.inference.site_form import LOG_2PI
from latlin.inference.structured_form import structured_form
from latlin.numerics.ascent import Ascent, Checkpoint, Rules
from latlin.numerics.linalg import Cholesky, cholesky

Array = NDArray[np.float64]
#: standard deviations from the mode at which Newton's method has prepared a Gaussian KL fit
NEAR = 1.0
#: smallest eigenvalue of a Laplace precision, in units of the prior's typical curvature, where the prior is no Gaussian
FLATTEST = 1e-4


@dataclass(frozen=True)
class OnBlocks:
    """An engine that runs on a `BlockModel` in the place of one in memory."""

    name: ClassVar[str] = "blocks"
    engine: Engine

    def run(
        self,
        model: Any,
        *,
        start: Posterior | None = None,
        verbose: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Posterior:
        return infer_blocks(model, self.engine, start=start, verbose=verbose, checkpoint=checkpoint)


def infer_blocks(
    model: BlockModel,
    engine: Engine,
    *,
    start: Posterior | None = None,
    verbose: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Posterior:
    """Approximate the posterior of a model of blocks; arguments as of `latlin.infer`."""
    if isinstance(engine, Auto):
        engine, reason = choose_for_blocks(model)
        post = infer_blocks(model, engine, start=start, verbose=verbose, checkpoint=checkpoint)
        return replace(post, message=f"auto: {reason}; {post.message}")
    run = RUN.get(type(engine))
    if run is None:
        raise ValueError(f"engine {engine.name!r} cannot be used: {RUNS}")
    saved = None if checkpoint is None else Checkpoint(checkpoint, _fingerprint(model, engine))
    return run(engine, model, start, verbose, saved)


def choose_for_blocks(model: BlockModel) -> tuple[GaussianKL, str]:
    """A full covariance where it is affordable, else a diagonal one, and the reason."""
    if model.dim <= FULL:
        return GaussianKL(), f"rows in blocks, {model.dim} dimensions: a full covariance is affordable"
    return GaussianKL(covariance="diagonal"), f"rows in blocks, {model.dim} dimensions: a diagonal covariance"


def _fingerprint(model: BlockModel, engine: Engine) -> str:
    told = f"{fingerprint(model.own, engine)} {type(model.reading).__name__} {model.signature}"
    return hashlib.sha256(told.encode()).hexdigest()


def _posterior(
    model: BlockModel,
    engine: Engine,
    ascent: Ascent[Any],
    density: Density,
    evidence: float,
    kind: EvidenceKind,
    started: float,
    note: str = "",
) -> Posterior:
    return Posterior(
        model=model,
        density=density,
        log_evidence=evidence,
        evidence_kind=kind,
        engine=engine.name,
        converged=ascent.converged,
        n_iter=ascent.n_iter,
        trace=ascent.trace,
        elapsed=time.perf_counter() - started,
        message=ascent.message + note,
    )


def _first(form: BlockForm, start: Posterior | None) -> Array:
    return np.zeros(form.own.rank) if start is None else form.own.coordinates(start.mean)


def _run_map(
    engine: MAP, model: BlockModel, start: Posterior | None, verbose: bool, checkpoint: Checkpoint | None
) -> Posterior:
    started, form = time.perf_counter(), block_form(model)
    climb: Callable[..., Ascent[Any]] = find_block_mode if model.smooth else find_kinked_block_mode
    rules = Rules(gradient_tol=engine.tol, max_iter=engine.max_iter, monotone=model.log_concave, remedy=modes.REMEDY)
    ascent = climb(form, _first(form, start), rules, "MAP", verbose, checkpoint)
    density = PointMass(form.own.weights(ascent.state.u))
    return _posterior(model, engine, ascent, density, float("nan"), "none", started)


def _run_laplace(
    engine: Laplace, model: BlockModel, start: Posterior | None, verbose: bool, checkpoint: Checkpoint | None
) -> Posterior:
    started, form = time.perf_counter(), block_form(model)
    laplace.refuse_kinks(model.kinds)
    rules = Rules(gradient_tol=engine.tol, max_iter=engine.max_iter, monotone=True, remedy=laplace.REMEDY)
    ascent = find_block_mode(form, _first(form, start), rules, "Laplace", verbose, checkpoint)
    mode: BlockMode = ascent.state
    chol = _curvature(form, mode)
    if chol is None:
        raise laplace.vanished(ascent.n_iter, ascent.gradient)
    # log p(u*) + ½ log det(2πP⁻¹)
    evidence = mode.objective + 0.5 * (form.own.rank * LOG_2PI - chol.log_det)
    kind: EvidenceKind = "exact" if model.gaussian else "approximation"
    return _posterior(model, engine, ascent, _gaussian(form, mode.u, chol), evidence, kind, started)


def _curvature(form: BlockForm, mode: BlockMode) -> Cholesky | None:
    """The factor of the precision at the mode; None where it is flat or of the wrong sign."""
    try:
        chol = cholesky(mode.precision)
    except ValueError:
        return None
    flat = form.own.quadratic is not None and np.linalg.eigvalsh(mode.precision, UPLO="U")[0] < FLATTEST
    return None if flat else chol


def _gaussian(form: BlockForm, u: Array, precision: Cholesky) -> Gaussian:
    return Gaussian(form.own.weights(u), PrecisionCovariance(form.own.whitening, precision))


def _run_gaussian_kl(
    engine: GaussianKL, model: BlockModel, start: Posterior | None, verbose: bool, checkpoint: Checkpoint | None
) -> Posterior:
    rules = Rules(gradient_tol=engine.tol, max_iter=engine.max_iter, monotone=True, remedy=gaussian_kl.REMEDY)
    plan = engine._plan()
    if plan is not None:
        return _structured(engine, plan, model, start, rules, verbose, checkpoint)
    started, form = time.perf_counter(), block_form(model)
    first = _start(form, model, start)
    ascent = maximise_block_bound(form, first, rules, verbose, checkpoint)
    state: BlockState = ascent.state
    kind: EvidenceKind = "exact" if model.gaussian else "lower bound"
    note = "" if model.log_concave else gaussian_kl.LOCAL
    density = _gaussian(form, state.m, cholesky(state.precision))
    return _posterior(model, engine, ascent, density, state.bound, kind, started, note)


def _start(form: BlockForm, model: BlockModel, start: Posterior | None) -> BlockState:
    """The posterior given; else the curvature near the mode, where there is one; else the sites' typical one."""
    inherited = None if start is None else _inherited(form, start)
    found = inherited or _at_mode(form, model, _first(form, start)) or _at_centres(form)
    if found is None:
        raise ValueError(gaussian_kl.NOWHERE)
    return found


def _inherited(form: BlockForm, start: Posterior) -> BlockState | None:
    u = form.own.coordinates(start.mean)
    half = form.own.whitening.solve(start.covariance())
    try:
        precision = cholesky(form.own.whitening.solve(np.ascontiguousarray(half.T))).inverse()
    except ValueError:
        return None
    return block_state(form, u, np.asfortranarray(np.triu(precision)))


def _at_mode(form: BlockForm, model: BlockModel, first: Array) -> BlockState | None:
    if not model.smooth:
        return None
    rough = Rules(gradient_tol=NEAR, objective_tol=np.inf, max_iter=50)
    mode = find_block_mode(form, first, rough, "start", warn=False, measure=distance).state
    return block_state(form, mode.u, mode.precision)


def _at_centres(form: BlockForm) -> BlockState | None:
    centre = np.zeros(form.own.rank)
    return block_state(form, centre, form.precision(form.sums(typical_terms, centre)))


def _structured(
    engine: GaussianKL,
    plan: Any,
    model: BlockModel,
    start: Posterior | None,
    rules: Rules,
    verbose: bool,
    checkpoint: Checkpoint | None,
) -> Posterior:
    if isinstance(plan, SubspacePlan):
        raise ValueError(f"covariance='subspace' cannot be used: {RUNS}")
    started, form = time.perf_counter(), structured_form(model.own)
    scale = typical_block_scale(form, model)
    mean = np.zeros(form.dim)
    if start is not None:
        mean, given = form.coordinates(start.mean), np.sqrt(start.variance) / form.whitening.scale
        scale = np.where(np.isfinite(given) & (given > 0.0), given, scale)
    structure, ascent, note = plan.fit(BlockClimber(form, rules, verbose, checkpoint, model), mean, scale)
    m, theta = ascent.state.point[: form.dim], ascent.state.point[form.dim :]
    density = Gaussian(form.weights(m), StructuredCovariance(form.whitening, structure, theta))
    note += "" if model.log_concave else gaussian_kl.LOCAL
    return _posterior(model, engine, ascent, density, ascent.state.bound, "lower bound", started, note)


RUN: dict[type, Callable[..., Posterior]] = {MAP: _run_map, Laplace: _run_laplace, GaussianKL: _run_gaussian_kl}
