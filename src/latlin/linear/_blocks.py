"""Rows in blocks: the first pass over them, and observations that are read where they are.

Everything is checked in the first pass, once, with the sentences of data in memory. Moments of parts are merged by the
formula of Chan, Golub and LeVeque (1983), in the order of the blocks.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.sparsefuncs import mean_variance_axis

from latlin.distributed.blocks import Block, Blocks, combine_pairwise, slices
from latlin.inference.blocks import BlockModel, Observed
from latlin.inference.model import GaussianFactor, LatentLinearModel, SiteFactor
from latlin.linear._problem import Design, LabelCoding, Values, check_offsets, check_weights
from latlin.numerics.arrays import Array, check_measurable, check_summable
from latlin.potentials.base import Potential
from latlin.potentials.checks import RefusedSites
from latlin.potentials.families import Family

#: rows that stay in the cache
PIECE = 1024


class ColumnMoments(NamedTuple):
    """Total weight, weighted means and weighted sums of squared deviations of some columns."""

    weight: float
    mean: Array
    squares: Array

    @property
    def variance(self) -> Array:
        return self.squares / self.weight

    def merged(self, other: ColumnMoments) -> ColumnMoments:
        weight = self.weight + other.weight
        if weight == 0.0:
            return self
        with np.errstate(invalid="ignore", over="ignore"):
            step = other.mean - self.mean
            mean = self.mean + step * (other.weight / weight)
            squares = self.squares + other.squares + step**2 * (self.weight * other.weight / weight)
        return ColumnMoments(weight, mean, squares)


class LabelWeights(NamedTuple):
    """Distinct labels, sorted, and the weight of each."""

    values: NDArray[Any]
    weight: Array

    def merged(self, other: LabelWeights) -> LabelWeights:
        values, place = np.unique(np.concatenate([self.values, other.values]), return_inverse=True)
        return LabelWeights(values, _counted(place, np.concatenate([self.weight, other.weight]), len(values)))


class FirstPass(NamedTuple):
    """What the first pass finds.

    Parameters
    ----------
    n_rows : int
        Rows of positive weight.
    features : Moments
    response : Moments or None
        Of y and of y less its offset; None for labels.
    labels : Labels or None
    log_exposure : float or None
        log Σ weight exp(offset); None without offsets, one per row.
    width : int
        Offsets per row.
    sparse, single : bool
        Some rows are sparse; all are of single precision.
    """

    n_rows: int
    features: ColumnMoments
    response: ColumnMoments | None
    labels: LabelWeights | None
    log_exposure: float | None
    width: int
    sparse: bool
    single: bool

    def merged(self, other: FirstPass) -> FirstPass:
        return FirstPass(
            self.n_rows + other.n_rows,
            self.features.merged(other.features),
            None if self.response is None or other.response is None else self.response.merged(other.response),
            None if self.labels is None or other.labels is None else self.labels.merged(other.labels),
            None
            if self.log_exposure is None or other.log_exposure is None
            else float(np.logaddexp(self.log_exposure, other.log_exposure)),
            max(self.width, other.width),
            self.sparse or other.sparse,
            self.single and other.single,
        )


def _counted(place: NDArray[np.intp], weight: Array, length: int) -> Array:
    return np.bincount(place, weight, length).astype(float)


def describe(blocks: Blocks, labelled: bool, columns: int = 1) -> FirstPass:
    """The table of all blocks, with so many numbers in the response of one row."""
    table = combine_pairwise(blocks.each(_described, labelled, columns), FirstPass.merged)
    if table.n_rows == 0:
        raise ValueError("sample_weight is zero everywhere: there is nothing to learn from")
    if table.response is not None:
        check_measurable("y", np.maximum(np.abs(table.response.mean[:1]), np.sqrt(table.response.variance[:1])))
    return table


def take_column(y: Any, columns: int = 1) -> NDArray[Any]:
    """The response as a vector; a single column is taken as one. Where several numbers belong to a row, as a matrix."""
    if y is None:
        raise ValueError("y is missing: blocks of rows must come with their responses")
    values = np.asarray(y)
    if values.ndim == 2 and 1 < values.shape[1] <= columns:
        return values
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim != 1:
        raise ValueError(f"y should be a 1d array, got an array of shape {values.shape} instead.")
    return values


def _described(block: Block, labelled: bool, columns: int) -> FirstPass:
    count = block.n_rows
    y = take_column(block.y, columns)
    if len(y) != count:
        raise ValueError(f"X and y have different lengths: {count} and {len(y)} rows in a block")
    weight = None if block.weight is None else _weights(np.asarray(block.weight), count)
    share = np.ones(count) if weight is None else weight
    offset = None if block.offset is None else check_offsets(block.offset, count, np.shape(block.offset)[-1])
    features = _sparse_moments(block.X, weight) if sparse.issparse(block.X) else _dense_moments(block.X, share)
    _refuse_missing("X", block.X, features.mean)
    single = offset is not None and offset.ndim == 1
    with np.errstate(divide="ignore"):
        exposure = float(np.logaddexp.reduce(offset + np.log(share))) if single and count else None
    return FirstPass(
        int(np.count_nonzero(share)),
        features,
        None if labelled else _response(y, offset, share),
        _labels(y, share) if labelled else None,
        exposure,
        1 if offset is None or offset.ndim == 1 else offset.shape[1],
        sparse.issparse(block.X),
        block.X.dtype == np.float32,
    )


def _weights(weight: Array, count: int) -> Array:
    """Checked; a block may be all zero, not all of them."""
    if weight.shape == (count,) and not weight.any():
        return np.zeros(count)
    checked = check_weights(weight, count)
    assert checked is not None
    return checked


def _refuse_missing(name: str, values: Any, mean: Array) -> None:
    """NaN and infinities, which no mean hides; and numbers whose squares cannot be summed."""
    if not np.all(np.isfinite(mean)):
        numbers = values.data if sparse.issparse(values) else np.asarray(values)
        said = "NaN" if np.isnan(numbers).any() else "infinity or a value too large for dtype('float64')"
        raise ValueError(f"Input {name} contains {said}.")
    check_summable(name, values)


def _dense_moments(X: Any, weight: Array) -> ColumnMoments:
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got an array of shape {X.shape} instead")
    total = ColumnMoments(0.0, np.zeros(X.shape[1]), np.zeros(X.shape[1]))
    for part in slices(X.shape[0], PIECE):
        total = total.merged(_moments(np.asarray(X[part], dtype=float), weight[part]))
    return total


def _moments(rows: Array, weight: Array) -> ColumnMoments:
    total = float(weight.sum())
    if total == 0.0:
        _refuse_missing("X", rows, rows.sum(axis=0))
        return ColumnMoments(0.0, np.zeros(rows.shape[1]), np.zeros(rows.shape[1]))
    with np.errstate(invalid="ignore", over="ignore"):
        # rows of weight zero are checked as well: 0·NaN is NaN
        mean = np.einsum("n,nd->d", weight / total, rows)
        deviation = rows - mean
        return ColumnMoments(total, mean, np.einsum("n,nd,nd->d", weight, deviation, deviation))


def _sparse_moments(X: Any, weight: Array | None) -> ColumnMoments:
    rows = sparse.csr_matrix(X, dtype=float)
    total = float(X.shape[0] if weight is None else weight.sum())
    if not np.all(np.isfinite(rows.data)):
        _refuse_missing("X", rows, np.array([np.nan]))
    if total == 0.0:
        return ColumnMoments(0.0, np.zeros(X.shape[1]), np.zeros(X.shape[1]))
    mean, variance = mean_variance_axis(rows, axis=0, weights=weight)
    return ColumnMoments(total, np.asarray(mean, float), total * np.asarray(variance, float))


def _response(y: NDArray[Any], offset: Array | None, weight: Array) -> ColumnMoments:
    try:
        values = y.astype(float)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"y must be numeric, got {y.dtype}") from error
    _refuse_missing("y", values, np.atleast_1d(values.sum()))
    values = values if values.ndim == 1 else values[:, 0]
    residual = values if offset is None else values - offset
    return _dense_moments(np.column_stack([values, residual]), weight)


def _labels(y: NDArray[Any], weight: Array) -> LabelWeights:
    if y.dtype.kind == "f" and np.isnan(y).any():
        raise ValueError("Input y contains NaN.")
    try:
        values, place = np.unique(y, return_inverse=True)
    except TypeError as error:
        raise ValueError("y has labels that cannot be put in order: missing ones, or numbers among texts") from error
    if len(values):
        check_classification_targets(values)
    counts = _counted(place, weight, len(values))
    return LabelWeights(values[counts > 0.0], counts[counts > 0.0])


# --- Observations in blocks as a problem has them.


@dataclass(frozen=True)
class LinearReading:
    """Rows of features and observations as sites; rows of weight zero are left out.

    Parameters
    ----------
    design : Design
    family : Family
    values : dict
        Hyperparameters.
    coding : Coding
    column : int
        Which of several offsets per row.
    """

    design: Design
    family: Family
    values: Values
    coding: LabelCoding
    column: int

    def __call__(self, block: Block) -> Observed | None:
        y = take_column(block.y, len(self.family.columns))
        X, weight, offset = block.X, block.weight, block.offset
        if weight is not None:
            weight = np.asarray(weight, float)
            kept = weight > 0.0
            if not kept.any():
                return None
            if not kept.all():
                X, y, weight, offset = X[kept], y[kept], weight[kept], None if offset is None else offset[kept]
        if offset is not None:
            offset = np.asarray(offset, float)
            offset = offset[:, self.column] if offset.ndim == 2 else offset
        try:
            sites = self.family.potential(self.coding(y), self.values)
        except RefusedSites as error:
            raise ValueError(f"in block {block.number} of the rows {error}") from None
        return Observed(self.design.rows(X), sites, weight, offset)

    def kind(self) -> Potential:
        return self.family.kind(self.values)


@dataclass(frozen=True)
class Summarised:
    """What families ask of targets, from the table of the first pass."""

    table: FirstPass
    class_weight: Array | None = None

    def mean(self) -> float:
        assert self.table.response is not None  # numbers have one
        return float(self.table.response.mean[0])

    def residual_moments(self) -> tuple[float, float]:
        assert self.table.response is not None  # numbers have one
        return float(self.table.response.mean[1]), float(np.sqrt(self.table.response.variance[1]))

    def log_exposure(self) -> float | None:
        total = self.table.log_exposure
        return None if total is None else total - float(np.log(self.table.features.weight))

    def class_weights(self, count: int) -> Array:
        assert self.class_weight is not None  # labels have them
        return self.class_weight


@dataclass(frozen=True)
class BlockRows:
    """Rows in blocks.

    Parameters
    ----------
    blocks : Blocks
    table : Table
        What the first pass found.
    targets : Summarised
    coding : Coding
    column : int
    digest : str
        Of the rows, where a checkpoint is kept.
    """

    blocks: Blocks
    table: FirstPass
    targets: Summarised
    coding: LabelCoding
    column: int
    digest: str = ""

    @property
    def n_rows(self) -> int:
        return self.table.n_rows

    @property
    def weight(self) -> float:
        return self.table.features.weight

    def feature_size(self, n_features: int) -> float:
        """The root mean square of the features."""
        moments = self.table.features
        return float(np.sqrt(np.mean(moments.variance + moments.mean**2))) or 1.0

    def model(self, prior: GaussianFactor | SiteFactor, design: Design, family: Family, values: Values) -> BlockModel:
        reading = LinearReading(design, family, dict(values), self.coding, self.column)
        return BlockModel(LatentLinearModel([prior]), self.blocks, reading, self._signature(design, values))

    def _signature(self, design: Design, values: Values) -> str:
        """What distinguishes these data and hyperparameters from others."""
        digest = hashlib.sha256(repr((self.table.n_rows, self.coding, self.column, self.digest)).encode())
        moments = [m for m in (self.table.features, self.table.response) if m is not None]
        numbers = [part for m in moments for part in m] + [values[name] for name in sorted(values)]
        for part in (*numbers, design.centre, design.spread):
            digest.update(np.asarray(part, float).tobytes())
        return digest.hexdigest()
