"""The verb: `infer(model, engine)`."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

from latlin.densities.sparse_precision import SparsePrecisionCovariance
from latlin.inference.affine.engine import AffineKL
from latlin.inference.auto import Auto
from latlin.inference.blocks import BlockModel
from latlin.inference.engine import Engine
from latlin.inference.ep.engine import ExpectationPropagation
from latlin.inference.exact import Exact
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.laplace import Laplace
from latlin.inference.local_bound.engine import LocalBound
from latlin.inference.map import MAP
from latlin.inference.mean_field import MeanField
from latlin.inference.model import LatentLinearModel, Model, in_memory
from latlin.inference.posterior import Posterior
from latlin.inference.propriety import OVERLAP, check_propriety, has_overlap
from latlin.numerics.threads import blas_threads_for

#: short name → engine with its default options
ENGINES: dict[str, type[Any]] = {
    engine.name: engine
    for engine in (MAP, Laplace, MeanField, LocalBound, ExpectationPropagation, GaussianKL, AffineKL, Exact)
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
        A short name ("map", "laplace", "mean-field", "lvb", "ep", "gkl", "ai-kl", "exact", or "auto") or an object of
        `latlin.engines` with its options.
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
    if not isinstance(model, BlockModel):
        check_propriety(in_memory(model))
    with blas_threads_for(_multiplications(model)):
        return _explained(chosen.run(model, start=start, verbose=verbose, checkpoint=checkpoint))


def _multiplications(model: Model) -> float:
    """Of the longest product of a fit: a weighted Gram matrix in the smaller of two spaces; rows in blocks are many."""
    if isinstance(model, BlockModel):
        return math.inf
    held = in_memory(model)
    rows = sum(held.site_count(factor) for factor in held.sites)
    return float(rows) * model.dim * min(rows, model.dim)


def _explained(post: Posterior) -> Posterior:
    """The posterior, its message with a word on overlapping factors and on a sparse precision."""
    if not isinstance(post.model, BlockModel) and has_overlap(in_memory(post.model)):
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
    if isinstance(engine, str):
        if engine == Auto.name:
            return Auto()
        if engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(['auto', *ENGINES])}, got {engine!r}")
        return ENGINES[engine]()
    if isinstance(engine, type) or not callable(getattr(engine, "run", None)):
        raise ValueError(f"engine must be a name or an object of latlin.engines, got {type(engine).__name__}")
    return engine
