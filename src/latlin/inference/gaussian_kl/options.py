"""From the words of `GaussianKL` to a plan, with every option checked; and from a plan's fit to a posterior."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

import numpy as np

from latlin.densities.gaussian import Gaussian
from latlin.densities.structured.chevron import Chevron
from latlin.densities.structured.covariance import StructuredCovariance
from latlin.densities.structured.rows import one_pool
from latlin.inference.engine import checkpoint_for
from latlin.inference.forms.structured import StructuredForm, structured_form
from latlin.inference.gaussian_kl.plans import (
    BandedPlan,
    ChevronPlan,
    Climber,
    DiagonalPlan,
    Fit,
    LowRankPlan,
    Plan,
    SparsePlan,
    typical_scale,
)
from latlin.inference.gaussian_kl.structured_starts import Moments, best_fit, structured_starts
from latlin.inference.gaussian_kl.subspace import BASES, SubspacePlan
from latlin.inference.model import LatentLinearModel
from latlin.inference.posterior import Posterior
from latlin.numerics.ascent import Rules

PROBED = "; squares of H were estimated by random signs (give the operator an attribute `squares`), so this is no bound"


class Options(NamedTuple):
    """The options of `GaussianKL` that shape its covariance."""

    covariance: str
    rank: int | None
    bandwidth: int | None
    order: Any
    pattern: Any
    basis: Any
    inner: str


def plan_of(options: Options) -> Plan | None:
    """The plan for a structured covariance; None for a full one."""
    makers = {
        "full": lambda o: None,
        "diagonal": lambda o: DiagonalPlan(),
        "banded": lambda o: BandedPlan(_count(o.bandwidth, "bandwidth", o.covariance, least=0)),
        "chevron": lambda o: ChevronPlan(_count(o.rank, "rank", o.covariance), _order(o.order, o.rank)),
        "sparse": lambda o: SparsePlan(_given(o.pattern)),
        "subspace": _subspace,
        "low-rank": lambda o: LowRankPlan(_count(o.rank, "rank", o.covariance)),
    }
    if not isinstance(options.covariance, str) or options.covariance not in makers:
        raise ValueError(f"covariance must be one of {', '.join(makers)}, got {options.covariance!r}")
    _refuse_unused(options)
    return makers[options.covariance](options)


USED = {
    "full": (),
    "diagonal": (),
    "banded": ("bandwidth",),
    "chevron": ("rank", "order"),
    "sparse": ("pattern",),
    "subspace": ("rank", "basis", "inner", "bandwidth"),
    "low-rank": ("rank",),
}


def _refuse_unused(options: Options) -> None:
    for name, value in options._asdict().items():
        unused = name not in ("covariance", *USED[options.covariance])
        if unused and value is not None and not (name == "inner" and value == "full"):
            raise ValueError(f"{name} has no meaning for covariance={options.covariance!r}")


def _count(value: int | None, name: str, covariance: str, least: int = 1) -> int:
    if value is None or int(value) != value or value < least:
        raise ValueError(f"covariance={covariance!r} needs {name}, an integer of at least {least}, got {value!r}")
    return int(value)


def _given(pattern: Any) -> Any:
    if pattern is None:
        raise ValueError("covariance='sparse' needs pattern, a matrix whose non-zeros are the places of the factor")
    return pattern


def _order(order: Any, rank: int | None) -> Any:
    if isinstance(order, str):
        if order != "natural":
            raise ValueError(f"order must be None, 'natural' or a list of coordinates, got {order!r}")
        return None if rank is None else np.arange(rank)
    return order


def _subspace(options: Options) -> SubspacePlan:
    basis = options.basis
    if isinstance(basis, str) and basis not in BASES:
        raise ValueError(f"basis must be one of {', '.join(BASES)}, or a matrix, got {basis!r}")
    if options.inner not in ("full", "banded", "diagonal"):
        raise ValueError(f"inner must be 'full', 'banded' or 'diagonal', got {options.inner!r}")
    if options.inner == "banded":
        _count(options.bandwidth, "bandwidth", "subspace", least=0)
    matrix = basis if basis is None or isinstance(basis, str) else np.asarray(basis, float)
    return SubspacePlan(_count(options.rank, "rank", "subspace"), matrix, options.inner, options.bandwidth)


def structured_posterior(
    engine: Any,
    plan: Plan,
    rules: Rules,
    model: LatentLinearModel,
    start: Posterior | None,
    verbose: bool,
    checkpoint: str | os.PathLike[str] | None,
) -> Posterior:
    """Fit a plan to a model."""
    started = time.perf_counter()
    form = structured_form(model, engine.probes)
    starts = structured_starts(form) if start is None else [_moments(form, start)]
    climber = Climber(form, rules, verbose, checkpoint_for(checkpoint, model, engine))
    with one_pool(form.rows):
        again = None if start is None else _continued(plan, climber, start)
        structure, ascent, note = again or best_fit(plan, climber, starts)
    m, theta = ascent.state.point[: form.dim], ascent.state.point[form.dim :]
    local = "" if form.sites.log_concave else "; the sites are not log-concave, so this optimum may be local"
    return Posterior(
        model=model,
        density=Gaussian(form.weights(m), StructuredCovariance(form.whitening, structure, theta)),
        log_evidence=ascent.state.bound,
        evidence_kind="approximation" if form.probed else "lower bound",
        engine=engine.name,
        converged=ascent.converged,
        n_iter=ascent.n_iter,
        trace=ascent.trace,
        elapsed=time.perf_counter() - started,
        message=ascent.message + note + local + (PROBED if form.probed else ""),
    )


def _continued(plan: Plan, climber: Climber, start: Posterior) -> Fit | None:
    """The fit that starts from a chevron as the plan asks for it, with the coordinates that it gave full rows."""
    covariance = getattr(start.density, "structure", None)
    if not (isinstance(plan, ChevronPlan) and isinstance(covariance, StructuredCovariance)):
        return None
    form, structure = climber.form, covariance.structure
    if not (isinstance(structure, Chevron) and plan.makes(structure) and len(start.mean) == form.dim):
        return None
    # S = L F̃ᵀF̃ L, so in the new coordinates F̃ L/L′
    ratio = covariance.whitening.scale / form.whitening.scale
    loadings, scale = structure.split(covariance.theta)
    theta = structure.joined(ratio[:, None] * loadings, ratio * scale)
    return plan.again(climber, form.coordinates(start.mean), structure, theta)


def _moments(form: StructuredForm, start: Posterior) -> Moments:
    if len(start.mean) != form.dim:
        raise ValueError(f"start has dimension {len(start.mean)}, but the model has {form.dim}")
    scale = np.sqrt(start.variance) / form.whitening.scale
    usual = typical_scale(form)
    return Moments(form.coordinates(start.mean), np.where(np.isfinite(scale) & (scale > 0.0), scale, usual))
