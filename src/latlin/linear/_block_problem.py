"""One response over blocks of rows: the model for given hyperparameters, and the gradient of its evidence in them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from latlin.distributed.blocks import Block, Blocks
from latlin.inference.block_model import BlockModel, Observed
from latlin.inference.evidence.blocks import block_evidence_gradient
from latlin.inference.model import LatentLinearModel
from latlin.inference.posterior import Posterior
from latlin.linear._block_table import Table, column_of
from latlin.linear._coding import Coding
from latlin.linear._design import Design
from latlin.linear._priors import Prior
from latlin.linear._problem import hyper_slopes
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential
from latlin.potentials.families import Family

Values = Mapping[str, Any]


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
        Which of several offsets a row.
    """

    design: Design
    family: Family
    values: Values
    coding: Coding
    column: int

    def __call__(self, block: Block) -> Observed | None:
        y = column_of(block.y, len(self.family.columns))
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
        return Observed(self.design.rows(X), self.family.potential(self.coding(y), self.values), weight, offset)

    def kind(self) -> Potential:
        return self.family.kind(self.values)


@dataclass(frozen=True)
class Summarised:
    """What families ask of targets, from the table of the first pass."""

    table: Table
    class_weight: Array | None = None

    def mean(self) -> float:
        assert self.table.response is not None  # asked of numbers only
        return float(self.table.response.mean[0])

    def residual_moments(self) -> tuple[float, float]:
        assert self.table.response is not None  # asked of numbers only
        return float(self.table.response.mean[1]), float(np.sqrt(self.table.response.variance[1]))

    def log_exposure(self) -> float | None:
        total = self.table.log_exposure
        return None if total is None else total - float(np.log(self.table.features.weight))

    def class_weights(self, count: int) -> Array:
        assert self.class_weight is not None  # asked of labels only
        return self.class_weight


@dataclass(frozen=True)
class BlockProblem:
    """As `Problem`, with the rows in blocks.

    Parameters
    ----------
    blocks : Blocks
    table : Table
    targets : Summarised
    design : Design
    family : Family
    prior : Prior
    intercept : tuple of float
        Mean and standard deviation of the prior of the intercept.
    coding : Coding
    column : int
    digest : str
        Of the rows, where a checkpoint is kept.
    """

    blocks: Blocks
    table: Table
    targets: Summarised
    design: Design
    family: Family
    prior: Prior
    intercept: tuple[float, float]
    coding: Coding
    column: int
    digest: str = ""

    def reading(self, values: Values) -> LinearReading:
        return LinearReading(self.design, self.family, dict(values), self.coding, self.column)

    def own(self, values: Values) -> LatentLinearModel:
        """The prior alone."""
        return LatentLinearModel([self.prior.factor(self.design, self.intercept, values)])

    def model(self, values: Values) -> BlockModel:
        return BlockModel(self.own(values), self.blocks, self.reading(values), self._signature(values))

    def gradient(self, posterior: Posterior, values: Values) -> dict[str, Any]:
        """∂ log Z / ∂ hyperparameter, re-optimised; one number a feature for "prior_scale"."""
        return hyper_slopes(self.design, self.family, self.prior, values, block_evidence_gradient(posterior))

    @cached_property
    def feature_size(self) -> float:
        """The root mean square of features that are not standardised; 1 where they are."""
        if np.any(self.design.spread != 1.0):
            return 1.0
        moments = self.table.features
        return float(np.sqrt(np.mean(moments.variance + moments.mean**2))) or 1.0

    @cached_property
    def unit(self) -> float:
        """The natural size of a coefficient of a standardised feature."""
        return self.family.unit(self.targets)

    def _signature(self, values: Values) -> str:
        """What tells these data and hyperparameters from others."""
        digest = hashlib.sha256(repr((self.table.n_rows, self.coding, self.column, self.digest)).encode())
        moments = [m for m in (self.table.features, self.table.response) if m is not None]
        numbers = [part for m in moments for part in m] + [values[name] for name in sorted(values)]
        for part in (*numbers, self.design.centre, self.design.spread):
            digest.update(np.asarray(part, float).tobytes())
        return digest.hexdigest()
