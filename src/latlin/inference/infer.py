"""The verb: `infer(model, engine)`, and the choice that "auto" makes."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from latlin.densities.sparse_precision import SparsePrecisionCovariance
from latlin.inference.affine.engine import AffineKL
from latlin.inference.blocks import BlockModel
from latlin.inference.elliptical import EllipticalKL
from latlin.inference.engine import Engine
from latlin.inference.ep.engine import ExpectationPropagation
from latlin.inference.estimated import can_be_estimated
from latlin.inference.exact import Exact
from latlin.inference.forms.prior import OVERLAP, has_overlap, has_proper_prior, may_take_sparse, needs_sparse
from latlin.inference.forms.projections import stacked_sites
from latlin.inference.forms.sites import Sites
from latlin.inference.forms.sparse import filling_plan, uses_sparse
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.laplace import MAP, Laplace
from latlin.inference.local_bound.engine import LocalBound
from latlin.inference.mean_field import MeanField
from latlin.inference.model import LatentLinearModel, Model, require_in_memory
from latlin.inference.posterior import Posterior
from latlin.inference.propriety import refuse_improper
from latlin.numerics.arrays import reuse_memory
from latlin.numerics.linalg import longest_product
from latlin.numerics.options import resolve_choice
from latlin.numerics.progress import show_beginning
from latlin.numerics.sparse_cholesky import Plan
from latlin.numerics.stored import storable_by_arguments
from latlin.numerics.threads import blas_threads_for

# --- The engine for a model, by its size, sparsity, log-concavity and smoothness; the choice is said in the message.
#
# A Gaussian with a full covariance is the best bound for its price while min(N, D) is a few thousand. Small models
# with kinks or heavy tails, or with fewer sites than dimensions, have peaked or skewed posteriors, where an affine-
# independent density earns its time. Models too large for a full covariance get a structured one, whose cost is the
# number of non-zeros times its rank.


#: min(N, D) up to which a full covariance is fitted, and dimension up to which D×D may be formed at all; beyond, N×D
#: numbers hold it where the prior is diagonal
FULL = 2000
SQUARE = 20_000
#: dimension up to which kinks and heavy tails, and up to which few data, are worth a non-Gaussian density
SMALL = 8
SKEWED = 60
#: full rows of a chevron, and the number of parameters that it, or the rows of a full covariance, may have
RANK = 50
PARAMETERS = 2 * 10**7


@storable_by_arguments
@dataclass(frozen=True)
class Auto:
    """Chooses an engine for the model, runs it and says why in `Posterior.message`."""

    name: ClassVar[str] = "auto"

    def run(
        self,
        model: Model,
        *,
        start: Posterior | None = None,
        verbose: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Posterior:
        """Approximate the posterior of `model`; see `latlin.infer`."""
        engine, reason = choose(model)
        post = engine.run(model, start=start, verbose=verbose, checkpoint=checkpoint)
        return replace(post, message=f"auto: {reason}; {post.message}")


def choose(model: Model) -> tuple[Engine, str]:
    """An engine and the reason for it."""
    if isinstance(model, BlockModel):
        return _for_blocks(model)
    model = require_in_memory(model)
    sites = stacked_sites(model)
    n, d = len(sites), model.dim
    if sites.extra is None and _is_independent(model):
        return MeanField(), "every factor is on single coordinates, so free-form mean field is exact"
    if may_take_sparse(model):
        size = f"{n} sites in {d} dimensions"
        plan = filling_plan(model) if can_be_estimated(model) else None
        if plan is not None:
            return GaussianKL(covariance="estimated"), f"{size}: {_filling(plan)}"
        if uses_sparse(model):
            return GaussianKL(), f"{size}, and the precision is sparse: a full covariance is affordable"
    if not _fits_full(model, n):
        return _structured(model, sites)
    if sites.gaussian:
        return GaussianKL(), "every factor is Gaussian, so Gaussian KL is exact"
    if sites.extra is not None:
        return GaussianKL(), f"{n} sites with an extra variance in {d} dimensions: a full covariance is affordable"
    rough = not sites.log_concave or not all(potential.smooth for potential in sites.potentials)
    if d <= SMALL and rough:
        return AffineKL(), f"sites with kinks or heavy tails in {d} dimensions, where a Gaussian is too stiff"
    if n < d <= SKEWED and not rough:
        return AffineKL(base="skew-normal"), f"{n} sites in {d} dimensions: few data leave the posterior skewed"
    return GaussianKL(), f"{n} sites in {d} dimensions: a full covariance is affordable and its bound the tightest"


def _filling(plan: Plan) -> str:
    """Why nothing is factorised."""
    return (
        f"the precision is sparse, but its factor would hold {plan.entries:.2g} numbers and take {plan.flops:.2g} "
        "operations, so variances and the evidence are estimated"
    )


def _for_blocks(model: BlockModel) -> tuple[Engine, str]:
    """A full covariance where it is affordable, else a diagonal one."""
    if model.dim <= FULL:
        return GaussianKL(), f"rows in blocks, {model.dim} dimensions: a full covariance is affordable"
    return GaussianKL(covariance="diagonal"), f"rows in blocks, {model.dim} dimensions: a diagonal covariance"


def _is_independent(model: LatentLinearModel) -> bool:
    """Nothing couples two coordinates, and no coordinate has two blocks of sites."""
    if needs_sparse(model):
        return False
    diagonal = all(factor.H is None and factor.factor is None for factor in model.gaussians)
    return diagonal and bool(model.gaussians) and len(model.sites) == 1 and model.sites[0].H is None


def _fits_full(model: LatentLinearModel, n: int) -> bool:
    measured = sum(factor.H.shape[0] for factor in model.gaussians if factor.H is not None)
    matrices = [*(factor.H for factor in model.sites), *(factor.H for factor in model.gaussians)]
    if any(isinstance(matrix, LinearOperator) for matrix in matrices):
        return model.dim <= FULL
    few = n + measured
    return min(few, model.dim) <= FULL and (model.dim <= SQUARE or few * model.dim <= PARAMETERS)


def _structured(model: LatentLinearModel, sites: Sites) -> tuple[Engine, str]:
    size = f"{len(sites)} sites in {model.dim} dimensions are too many for a full covariance"
    matrices = [factor.H for factor in model.sites if factor.H is not None]
    if any(isinstance(matrix, LinearOperator) for matrix in matrices):
        return GaussianKL(covariance="diagonal"), f"{size}, and H is an operator: a diagonal one"
    if not sites.log_concave:
        return GaussianKL(covariance="diagonal"), f"{size}, and the sites are not log-concave: a diagonal one"
    if model.dim * (RANK + 1) > PARAMETERS:
        return GaussianKL(covariance="diagonal"), f"{size} or a chevron of {RANK} rows: a diagonal one"
    kind = "sparse" if any(sparse.issparse(matrix) for matrix in matrices) else "dense"
    return GaussianKL(covariance="chevron", rank=RANK), f"{size}, H is {kind}: a chevron of {RANK} full rows"


#: short name → engine with its default options
ENGINES: dict[str, type[Any]] = {
    engine.name: engine
    for engine in (
        MAP,
        Laplace,
        MeanField,
        LocalBound,
        ExpectationPropagation,
        GaussianKL,
        EllipticalKL,
        AffineKL,
        Exact,
    )
}


def infer(
    model: Model,
    engine: str | Engine = "auto",
    *,
    start: Posterior | None = None,
    verbose: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Posterior:
    """Approximate the posterior of a latent linear model.

    Parameters
    ----------
    model : LatentLinearModel
    engine : str or engine object
        A short name ("map", "laplace", "mean-field", "lvb", "ep", "gkl", "t-kl", "ai-kl", "exact", or "auto") or an
        object of `latlin.engines` with its options.
    start : Posterior, optional
        Where to start, for example the posterior of a similar model.
    verbose : bool
        Show a progress bar.
    checkpoint : path, optional
        Keep the state of the fit in this file; if it exists, go on from it.

    Returns
    -------
    Posterior

    Examples
    --------
    >>> import numpy as np
    >>> from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
    >>> X = np.array([[1.0, 0.5], [0.2, -1.0], [-0.7, 0.1]])
    >>> model = LatentLinearModel([GaussianFactor(cov=4.0), SiteFactor(X, potentials.Logit([1, 0, 0]))])
    >>> post = infer(model, "gkl")
    >>> post.evidence_kind, round(post.log_evidence, 4)
    ('lower bound', -1.8448)
    """
    if not isinstance(model, LatentLinearModel | BlockModel):
        raise ValueError(f"model must be a LatentLinearModel, got {type(model).__name__}")
    if start is not None and not isinstance(start, Posterior):
        raise ValueError(f"start must be a Posterior, got {type(start).__name__}")
    chosen = resolve(engine)
    with show_beginning(chosen.name, verbose), blas_threads_for(_multiplications(model)), reuse_memory():
        if not has_proper_prior(model):
            refuse_improper(model)
        return _explained(chosen.run(model, start=start, verbose=verbose, checkpoint=checkpoint))


def _multiplications(model: Model) -> float:
    """Of the longest product of a fit."""
    if isinstance(model, BlockModel):
        return math.inf
    held = require_in_memory(model)
    return longest_product(sum(held.site_count(factor) for factor in held.sites), model.dim)


def _explained(post: Posterior) -> Posterior:
    """The posterior, its message with a word on overlapping factors and on a sparse precision."""
    if not isinstance(post.model, BlockModel) and has_overlap(require_in_memory(post.model)):
        post = replace(post, message=post.message + OVERLAP)
    structure = getattr(post.density, "structure", None)
    if not isinstance(structure, SparsePrecisionCovariance):
        return post
    numbers = structure.precision.factor.analysis.numbers
    share = numbers / (0.5 * structure.dim * (structure.dim + 1))
    note = f"the precision is sparse: its factor holds {numbers} numbers, {share:.2g} times those of a dense triangle"
    return replace(post, message=f"{post.message}; {note}")


def resolve(engine: str | Engine) -> Engine:
    """An engine object from a name or from itself."""
    known = {Auto.name: Auto, **ENGINES}
    found = resolve_choice("engine", engine, known, "an object of latlin.engines", _runs)
    chosen: Engine = found() if isinstance(found, type) else found
    return chosen


def _runs(engine: Any) -> bool:
    return callable(getattr(engine, "run", None))
