"""The fit of inducing points at fixed parameters, from a start where there is one.

A start near enough is followed by alternation (`latlin.gp.alternation`): rows in memory, log-concave sites. The last
fit, after which nobody asks for a gradient, keeps many rows in single precision and only while it lasts: memory that is
touched for the first time costs as much as a product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from latlin.densities.precision import PrecisionCovariance
from latlin.distributed.blocks import Block, Blocks, LocalBlocks, combine_pairwise, side_by_side, slices, widen_rows
from latlin.gp.alternation import alternate, sole_sites
from latlin.gp.inducing_model import HELD, PIECE, Basis, InducingFunction, KernelRows, block_model, fill_rows, model_of
from latlin.gp.rough_rows import RoughRows, map_parts
from latlin.inference.blocks import Observed
from latlin.inference.engine import Engine
from latlin.inference.forms.sums import HeldSites
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.infer import infer
from latlin.inference.model import GaussianFactor, LatentLinearModel, Model, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.linalg import gram

#: entries of the rows H from which on they are kept in single precision
SINGLE = 2**22


def fit_inducing(
    basis: Basis,
    blocks: Blocks,
    engine: Engine,
    one: Any,
    start: InducingFunction | None,
    verbose: bool,
    gap: float = 0.0,
    last: bool = False,
) -> InducingFunction:
    """The optimum over N(m, S) at fixed parameters, or a bound within `gap` of it.

    After the `last` fit no gradient is asked for: many rows are then kept in single precision, and only while it lasts.
    """
    posterior = _fitted_in_single(basis, blocks, engine, one, start, gap) if last and start is not None else None
    if posterior is None:
        model = model_of(basis, blocks, one)
        known = None if start is None or model.gaussian else start.start_at(basis, blocks, model)
        posterior = _alternated(model, engine, known, gap)
    if posterior is None:
        first = None if known is None else replace(known, sites=None)
        posterior = infer(model, engine, start=first, verbose=verbose)
    kind = "lower bound" if posterior.evidence_kind == "exact" else posterior.evidence_kind
    note = f"{posterior.message}; {len(basis.Z)} inducing points, whose evidence is a lower bound on the exact one"
    return InducingFunction(basis, replace(posterior, evidence_kind=kind, message=note), blocks, one)


def _fitted_in_single(
    basis: Basis, blocks: Blocks, engine: Engine, one: Any, start: InducingFunction, gap: float
) -> Posterior | None:
    """The optimum within a gap by alternation, where many rows are in memory."""
    if gap == 0.0 or not isinstance(blocks, LocalBlocks):
        return None
    whole, reading, model = blocks.whole, KernelRows(basis, one), block_model(basis, blocks, one)
    if model.gaussian or not SINGLE <= whole.n_rows * len(basis.Z) <= HELD:
        return None
    held: list[HeldSites] = []

    def made() -> HeldSites:
        held.append(single_sites(reading, whole))
        return held[0]

    posterior = _alternated(model, engine, start.start_at(basis, blocks, model), gap, made)
    return None if posterior is None else replace(posterior, model=model_on_demand(reading, whole, held[0].sites.extra))


def _alternated(
    model: Model,
    engine: Engine,
    start: Posterior | None,
    gap: float,
    made: Callable[[], HeldSites] | None = None,
) -> Posterior | None:
    """The optimum by alternation, where a start, rows in memory and log-concave sites allow it."""
    if start is None or not model.log_concave:
        return None
    if not isinstance(engine, GaussianKL) or engine != GaussianKL(tol=engine.tol, max_iter=engine.max_iter):
        return None
    structure: Any = getattr(start.density, "structure", None)
    if not isinstance(structure, PrecisionCovariance):
        return None
    held = sole_sites(model) if made is None else made()
    if held is None:
        return None
    gamma = None if start.sites is None else start.sites.gamma
    return alternate(model, held, start.mean, structure.precision, engine.tol, gap, gamma)


def single_sites(reading: KernelRows, whole: Block) -> HeldSites:
    """The sites of rows in memory, h_n in single precision."""
    made = MadeRows(reading.basis, whole.X)
    rows, extra = RoughRows.empty(made), np.empty(whole.n_rows)

    def fill(span: slice) -> None:
        for piece in slices(span.stop - span.start, PIECE):
            here = slice(span.start + piece.start, span.start + piece.stop)
            part = widen_rows(whole.X[here])
            h = reading.basis.rows(part)
            rows.rows[here], extra[here] = h, reading.basis.left_out(part, h)

    map_parts(fill, whole.n_rows)
    offset = np.full(whole.n_rows, reading.basis.setting.mean)
    return HeldSites(rows, Observed(rows.rows, reading.observed(whole), None, offset, extra).sites)


@dataclass(frozen=True)
class MadeRows:
    """Rows h_n that are made when they are asked for."""

    basis: Basis
    X: Array

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.X), len(self.basis.Z)

    def gram(self, weights: Array) -> Array:
        """Upper triangle of Hᵀ diag(weights) H."""
        spans = list(slices(len(self.X), PIECE))
        return combine_pairwise(
            side_by_side(lambda span: gram(self.block(span), weights[span]), spans, len(spans)), np.add
        )

    def block(self, span: slice) -> Array:
        return self.basis.rows(widen_rows(self.X[span]))

    @cached_property
    def whole(self) -> Array:
        """H, which is kept."""
        return fill_rows(self.basis, self.X)[0]

    def times(self, w: Array) -> Array:
        """Hw, for a vector or the columns of a matrix."""
        return np.asarray(self.whole @ w)

    def transposed_times(self, r: Array) -> Array:
        """Hᵀr, likewise."""
        return np.asarray(self.whole.T @ r)

    @property
    def operator(self) -> LinearOperator:
        """H as an operator."""
        back = self.transposed_times
        return LinearOperator(self.shape, matvec=self.times, rmatvec=back, matmat=self.times, rmatmat=back, dtype=float)


def model_on_demand(reading: KernelRows, whole: Block, extra: Array | None) -> LatentLinearModel:
    """The model of rows in memory whose h_n are made once something is asked of them."""
    basis, rows = reading.basis, MadeRows(reading.basis, whole.X).operator
    sites = SiteFactor(rows, reading.observed(whole), offset=basis.setting.mean, extra_variance=extra)
    return LatentLinearModel([GaussianFactor(dim=len(basis.Z)), sites])
