"""The sparse form of a model whose rows are in blocks: HᵀΓH is a sum over rows with a fixed pattern.

One pass finds the pattern of HᵀH, which is ordered and analysed here; every evaluation is one pass that returns the
entries of HᵀΓH and vectors of the length of w (Challis (2013), §4.6.2). Nothing is kept per row. A block looks up where
its pairs of non-zeros stand in the pattern when its turn comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from latlin.densities.gaussian import Gaussian
from latlin.densities.sparse_precision import SparsePrecision, SparsePrecisionCovariance
from latlin.distributed.blocks import Block, add
from latlin.inference.blocks import BlockModel, Observed, Reading, read_pieces
from latlin.inference.forms.prior import quadratic_of
from latlin.inference.forms.site_family import STEADY, LocalGaussian
from latlin.inference.forms.sites import SiteParameters, Sites
from latlin.inference.forms.sparse import SparseForm, assemble_form
from latlin.inference.forms.sparse_rows import EntrySums, SharedPattern, expected_sums, times_entries
from latlin.inference.mode import Expansion
from latlin.numerics.arrays import Array
from latlin.numerics.sparse_cholesky import Analysis, analyse
from latlin.numerics.weighted_gram import WeightedGram

#: what models of the same rows that differ in values alone have in common
PATTERN, TYPICAL = "pattern", "typical"


@dataclass(frozen=True)
class SparseBlockForm(SparseForm):
    """A `SparseForm` whose sites are elsewhere.

    Parameters
    ----------
    elsewhere : BlockModel
    """

    elsewhere: BlockModel

    def _total(self, terms: Any, deviation: Array, *shared: Any) -> EntrySums:
        """One pass: the terms of all sites at w = origin + deviation."""
        found = self.elsewhere.total(sparse_sums, terms, self.analysis, self.prior.origin, deviation, *shared)
        return EntrySums(float(found[0]), *found[1:])

    def entry_sums(self, deviation: Array, inverse: Array) -> tuple[EntrySums, SiteParameters | None] | None:
        sums = self._total(expected_terms, deviation, inverse)
        return (sums, None) if np.isfinite(sums.value) else None

    def expand(self, u: Array, smoothing: float | None = None) -> Expansion:
        """The log joint about u, in one pass; the form keeps HᵀΓH on the entries."""
        if smoothing is not None:
            raise ValueError("sites with kinks on blocks of rows need a prior that is given by its covariance")
        projections = self.projections
        sums = self._total(point_terms, projections.scale * u)
        value = self.log_gaussian(u) + sums.value
        gradient = self.linear - self.times_quadratic(u) + projections.along(projections.scale * sums.slope)
        return Expansion(u, value if np.isfinite(value) else -np.inf, gradient, sums.entries)

    def normal_sums(self, deviation: Array) -> EntrySums:
        """Σwr², HᵀWr and HᵀWH of normal observations, r = y − o − Hw."""
        return self._total(normal_terms, deviation)

    def total_weight(self) -> float:
        """Σw of all sites."""
        return float(self.elsewhere.total(weight_sums)[0])

    def newton_step(self, at: Expansion) -> Array | None:
        return self._step(self.precision_with(at.kept), at.gradient)

    def steady_step(self, at: Expansion) -> Array | None:
        sums = self._total(steady_terms, self.projections.scale * at.u)
        return self._step(self.precision_with(sums.entries), at.gradient)

    def _step(self, precision: SparsePrecision | None, gradient: Array) -> Array | None:
        scale = self.projections.scale
        return None if precision is None else precision.solve(gradient / scale) / scale

    def curvature(self, at: Expansion) -> Array:
        raise ValueError(
            "the log joint of these blocks of rows is flat where Newton's method stopped: use engine 'gkl'"
        )

    def gaussian_at(self, at: Expansion) -> LocalGaussian | None:
        precision = self.precision_with(at.kept)
        if precision is None:
            return None
        # where one more Newton step leads, as the mean of the stand-ins is
        moved = at.u + precision.solve(at.gradient / self.projections.scale) / self.projections.scale
        density = Gaussian(self.weights(moved), SparsePrecisionCovariance(precision))
        return LocalGaussian(density, precision.log_det, None)

    def coordinates_at(self, at: Expansion) -> tuple[Array, Array]:
        """HᵀΓH and Hᵀν of the Gaussian with the curvature there: Hᵀν = Hᵀψ′ + HᵀΓHδ, Hᵀψ′ from the gradient."""
        scale = self.projections.scale
        slope = (at.gradient - self.linear + self.times_quadratic(at.u)) / scale
        return at.kept, slope + times_entries(self.analysis, at.kept, scale * at.u)


def sparse_block_form(model: BlockModel) -> SparseBlockForm:
    """The form of a block model whose prior is a sparse precision, or has constraints."""
    if model.own.sites:
        raise ValueError(f"rows in blocks with a precision matrix have no other sites on w, got {model.own!r}")
    prior = quadratic_of(model.own)
    shared = _shared(model, prior.precision)
    typical = model.kept.get(TYPICAL)
    if typical is None:
        shape = (shared.gram.analysis, prior.origin, np.zeros(model.dim))
        # units of the coordinates, which models of the same rows share
        typical = model.kept[TYPICAL] = model.total(sparse_sums, typical_terms, *shape)[2]
    none = Sites((), np.zeros(0), np.zeros(0))
    return assemble_form(SparseBlockForm, model.own, prior, shared, none, typical, elsewhere=model)


def _shared(model: BlockModel, precision: sparse.csr_array) -> SharedPattern:
    """The analysis of the pattern of Λ + HᵀH; models of the same blocks and prior pattern share it."""
    kept: SharedPattern | None = model.kept.get(PATTERN)
    if kept is not None and kept.has_pattern(precision):
        return kept
    (pattern,) = model.total(pattern_sums)
    analysis = analyse(abs(precision).astype(np.float32) + pattern)
    empty = sparse.csr_array((0, model.dim))
    shared = SharedPattern.of(precision, WeightedGram(analysis, empty))
    model.kept.clear()
    model.kept[PATTERN] = shared
    return shared


# --- What is done where the rows are.


def pattern_sums(block: Block, reading: Reading) -> tuple[Any, ...]:
    """HᵀH of ones: where it is not zero."""
    total: Any = None
    for observed in read_pieces(block, reading):
        rows = sparse.csr_array(observed.rows)
        ones = sparse.csr_array((np.ones(rows.nnz, np.float32), rows.indices, rows.indptr), shape=rows.shape)
        found = sparse.csr_array(ones.T @ ones)
        found.data[:] = 1.0
        total = found if total is None else total + found
    return (total,) if total is not None else (0.0,)


def sparse_sums(
    block: Block, reading: Reading, terms: Any, analysis: Analysis, origin: Array, deviation: Array, *shared: Any
) -> tuple[Any, ...]:
    """Terms of a block at w = origin + deviation."""
    zeros = np.zeros(analysis.dim)
    total: tuple[Any, ...] = EntrySums(0.0, zeros, np.zeros(len(analysis.indices)), zeros)
    for observed in read_pieces(block, reading):
        gram = WeightedGram(strip_analysis(analysis), sparse.csr_array(observed.rows))
        total = add(total, terms(gram, _shifted(observed, origin), deviation, *shared))
    return total


def strip_analysis(analysis: Analysis) -> Analysis:
    """The same analysis without what belongs to other rows, so that blocks side by side do not mix theirs."""
    own = {name: getattr(analysis, name) for name in Analysis.__dataclass_fields__}
    return Analysis(**own)


def _shifted(observed: Observed, origin: Array) -> Sites:
    return observed.sites.shifted(np.asarray(observed.rows @ origin)) if origin.any() else observed.sites


def expected_terms(gram: WeightedGram, sites: Sites, deviation: Array, inverse: Array) -> EntrySums:
    """What a Gaussian KL step needs; a value of −∞ where an expectation is not finite."""
    found = expected_sums(gram, sites, deviation, inverse)
    zeros = np.zeros(len(deviation))
    return EntrySums(-np.inf, zeros, np.zeros(len(inverse)), zeros) if found is None else found[0]


def point_terms(gram: WeightedGram, sites: Sites, deviation: Array) -> EntrySums:
    """ψ, Hᵀψ′ and −Hᵀψ″H."""
    x = gram.rows @ deviation
    with np.errstate(over="ignore", invalid="ignore"):
        value, (first, second, _) = sites.log_density(x), sites.derivatives(x)
    return EntrySums(float(value.sum()), gram.columns @ first, gram.total(-second), np.zeros(len(deviation)))


def steady_terms(gram: WeightedGram, sites: Sites, deviation: Array) -> EntrySums:
    """As `point_terms`, with |ψ″|, at least a share of a typical curvature."""
    gamma = np.maximum(np.abs(sites.derivatives(gram.rows @ deviation).second), STEADY * sites.typical_precision())
    zeros = np.zeros(len(deviation))
    return EntrySums(0.0, zeros, gram.total(gamma), zeros)


def normal_terms(gram: WeightedGram, sites: Sites, deviation: Array) -> EntrySums:
    """Σwr², HᵀWr and HᵀWH of normal densities."""
    ((_, potential),) = sites.blocks
    residual = getattr(potential, "loc") - sites.offset - gram.rows @ deviation  # noqa: B009
    pulled = sites.weight * residual
    return EntrySums(
        float(pulled @ residual), gram.columns @ pulled, gram.total(sites.weight), np.zeros(len(deviation))
    )


def weight_sums(block: Block, reading: Reading) -> tuple[Any, ...]:
    """Σw of a block."""
    return (float(sum(observed.sites.weight.sum() for observed in read_pieces(block, reading))),)


def typical_terms(gram: WeightedGram, sites: Sites, deviation: Array) -> EntrySums:
    """The sites' typical curvature and nothing else."""
    zeros = np.zeros(len(deviation))
    return EntrySums(0.0, zeros, gram.total(sites.typical_precision()), zeros)
