"""Engines on models of blocks: MAP, Laplace and Gaussian KL by sums over rows.

The steps are those that the engine takes in memory, for full Gaussian KL those of `algorithm="sums"`: nothing is kept a
row. Nothing but sums travels (Challis (2013), §4.6.2).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from latlin.densities.gaussian import Gaussian
from latlin.densities.point import PointMass
from latlin.densities.structured.covariance import StructuredCovariance
from latlin.inference.approximation import Density, EvidenceKind
from latlin.inference.auto import FULL, Auto
from latlin.inference.block_model import RUNS, BlockModel
from latlin.inference.engine import Engine, fingerprint
from latlin.inference.forms.blocks import BlockForm, block_form
from latlin.inference.forms.structured import structured_form
from latlin.inference.gaussian_kl import engine as gaussian_kl
from latlin.inference.gaussian_kl.block_structured import BlockClimber, typical_block_scale
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.gaussian_kl.full_fit import NOWHERE
from latlin.inference.gaussian_kl.subspace import SubspacePlan
from latlin.inference.gaussian_kl.sum_starts import first_point, first_state
from latlin.inference.gaussian_kl.sums import SumState, maximise_bound_by_sums
from latlin.inference.mode import laplace
from latlin.inference.mode import map as modes
from latlin.inference.mode.block_kinks import find_kinked_block_mode
from latlin.inference.mode.block_newton import BlockMode, find_block_mode
from latlin.inference.mode.laplace import Laplace
from latlin.inference.mode.map import MAP
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import LOG_2PI
from latlin.numerics.ascent import Ascent, Checkpoint, Rules
from latlin.numerics.linalg import Cholesky, cholesky

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


def _run_map(
    engine: MAP, model: BlockModel, start: Posterior | None, verbose: bool, checkpoint: Checkpoint | None
) -> Posterior:
    started, form = time.perf_counter(), block_form(model)
    climb: Callable[..., Ascent[Any]] = find_block_mode if model.smooth else find_kinked_block_mode
    rules = Rules(gradient_tol=engine.tol, max_iter=engine.max_iter, monotone=model.log_concave, remedy=modes.REMEDY)
    ascent = climb(form, first_point(form, start), rules, "MAP", verbose, checkpoint)
    density = PointMass(form.own.weights(ascent.state.u))
    return _posterior(model, engine, ascent, density, float("nan"), "none", started)


def _run_laplace(
    engine: Laplace, model: BlockModel, start: Posterior | None, verbose: bool, checkpoint: Checkpoint | None
) -> Posterior:
    started, form = time.perf_counter(), block_form(model)
    laplace.refuse_kinks(model.kinds)
    rules = Rules(gradient_tol=engine.tol, max_iter=engine.max_iter, monotone=True, remedy=laplace.REMEDY)
    ascent = find_block_mode(form, first_point(form, start), rules, "Laplace", verbose, checkpoint)
    mode: BlockMode = ascent.state
    chol = _curvature(form, mode)
    if chol is None:
        raise laplace.vanished(ascent.n_iter, ascent.gradient)
    # log p(u*) + ½ log det(2πP⁻¹)
    evidence = mode.objective + 0.5 * (form.own.rank * LOG_2PI - chol.log_det)
    kind: EvidenceKind = "exact" if model.gaussian else "approximation"
    return _posterior(model, engine, ascent, form.gaussian(mode.u, chol), evidence, kind, started)


def _curvature(form: BlockForm, mode: BlockMode) -> Cholesky | None:
    """The factor of the precision at the mode; None where it is flat or of the wrong sign."""
    try:
        chol = cholesky(mode.precision)
    except ValueError:
        return None
    flat = form.own.quadratic is not None and np.linalg.eigvalsh(mode.precision, UPLO="U")[0] < FLATTEST
    return None if flat else chol


def _run_gaussian_kl(
    engine: GaussianKL, model: BlockModel, start: Posterior | None, verbose: bool, checkpoint: Checkpoint | None
) -> Posterior:
    rules = Rules(gradient_tol=engine.tol, max_iter=engine.max_iter, monotone=True, remedy=gaussian_kl.REMEDY)
    plan = engine._plan()
    if plan is not None:
        return _structured(engine, plan, model, start, rules, verbose, checkpoint)
    if engine.algorithm == "sites":
        raise ValueError(f"algorithm='sites' cannot be used: {RUNS}")
    started, form = time.perf_counter(), block_form(model)
    first = first_state(form, model.smooth, start)
    if first is None:
        raise ValueError(NOWHERE)
    ascent = maximise_bound_by_sums(form, first, rules, verbose, checkpoint)
    state: SumState = ascent.state
    kind: EvidenceKind = "exact" if model.gaussian else "lower bound"
    note = "" if model.log_concave else gaussian_kl.LOCAL
    density = form.gaussian(state.m, cholesky(state.precision))
    return _posterior(model, engine, ascent, density, state.bound, kind, started, note)


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
