"""Additive models of tables whose rows are in blocks: terms are set up from a sample, sums are over all rows.

A first pass counts the rows and takes up to 100,000 of them at even distances, and one row of every label. From this
table come the levels of groups (all of them), places of splines, and the units in which columns are standardised and
default priors are wide; a table with fewer rows is taken as a whole. Everything else is sums over all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from latlin.additive.family import LearntParameter, ResponseFamily, example_row, observe
from latlin.additive.formula import Formula
from latlin.additive.problem import AdditiveProblem, offset_of, rows_of
from latlin.additive.term import Part, Values
from latlin.distributed.blocks import Block, Blocks
from latlin.distributed.checkpoints import digest_of
from latlin.distributed.opening import frame_blocks, sample_rows
from latlin.inference import blocks as in_blocks
from latlin.inference.blocks import BlockModel, Reading, read_pieces
from latlin.inference.engine import Engine
from latlin.inference.evidence.terms import ExpectedEvidence
from latlin.inference.exact import noise_slope
from latlin.inference.infer import infer
from latlin.inference.model import Constraint, GaussianFactor, LatentLinearModel
from latlin.inference.posterior import Posterior
from latlin.potentials.base import Potential

#: rows that terms are set up from
SAMPLE = 100_000


@dataclass(frozen=True)
class AdditiveReading:
    """Rows of a table as sites.

    Parameters
    ----------
    read : Formula
    parts : tuple of Part
    family : Family
    values : dict
        Hyperparameters.
    classes : ndarray of shape (classes,) or None
        The labels of a response that has such.
    """

    read: Formula
    parts: tuple[Part, ...]
    family: ResponseFamily
    values: Values
    classes: Any = None

    def __call__(self, block: Block) -> in_blocks.Observed:
        frame = block.X
        # one block need not have all labels
        observed = observe(self.read.response, self.family, frame, self.classes)
        offset = offset_of(self.read, frame, block.n_rows)
        design = rows_of(self.parts, frame, self.values).design
        return in_blocks.Observed(design, self.family.potential(observed, self.values), observed.weight, offset)

    def kind(self) -> Potential:
        return self.family.potential(example_row(self.read.response, self.family), self.values)


@dataclass(frozen=True)
class BlockProblem(AdditiveProblem):
    """A problem whose rows are in blocks; `observed`, `offset` and `design` are those of the sample.

    Attributes
    ----------
    read : Formula
    blocks : Blocks
    count : int
        Rows of all blocks.
    digest : str
        Of the rows, where a checkpoint is kept.
    """

    read: Any = None
    blocks: Any = None
    count: int = 0
    digest: str = ""

    @property
    def n_rows(self) -> int:
        return self.count

    def reading(self, values: Values) -> AdditiveReading:
        """How blocks become sites at some values of the hyperparameters."""
        return AdditiveReading(self.read, self.parts, self.family, dict(values), self.observed.classes)

    @cached_property
    def first_model(self) -> Any:
        Q, log_det = self._precision(self.starts)
        prior = [GaussianFactor(self.mean, precision=Q, rank=self._rank, log_det=log_det)] if self._rank else []
        if not prior:
            raise ValueError("rows in blocks need a prior: give some coefficient another one than Flat()")
        constraints = () if self.constraint is None else (Constraint(self.constraint),)
        own = LatentLinearModel(prior, constraints=constraints)
        return BlockModel(own, self.blocks, self.reading(self.starts), self.digest)

    @property
    def first_potential(self) -> Potential:
        return self.first_model.reading.kind()

    def model(self, values: Values) -> Any:
        first: BlockModel = self.first_model
        own = first.own.among([factor.with_precision(*self._precision(values)) for factor in first.own.gaussians])
        signature = f"{self.digest} {sorted(values.items())!r}"
        return BlockModel(own, first.blocks, self.reading(values), signature, first.kept)

    def fit(self, values: Values, engine: str | Engine, start: Posterior | None, checkpoint: Any = None) -> Posterior:
        return infer(self.model(values), engine, start=start, checkpoint=checkpoint)

    def _family_slope(self, posterior: Posterior, one: LearntParameter, values: Values) -> float | None:
        if not isinstance(posterior.evidence_term, ExpectedEvidence):
            return None
        by_sums = noise_slope(posterior, values[one.name]) if one.parameter == "scale" else None
        if by_sums is not None:
            return by_sums
        model = posterior.model
        assert isinstance(model, BlockModel)  # made by `model`
        return one.slope(np.asarray(model.total(parameter_sums, one.parameter, posterior.density)[0]))


def parameter_sums(block: Block, reading: Reading, parameter: str, density: Any) -> tuple[Any, ...]:
    """Σ weight ∂⟨ψ⟩/∂parameter of a block."""
    total: Any = 0.0
    for observed in read_pieces(block, reading):
        at, sites = density.project(sparse.csr_array(observed.rows)), observed.sites
        slopes = observed.potential.expected_parameter_derivative(parameter, at.mean + sites.offset, at.variance)
        total = total + np.broadcast_to(slopes, (*slopes.shape[:-1], len(sites))) @ sites.weight
    return (total,)


def open_table(frame: Any) -> tuple[Blocks, int, dict[str, Any]]:
    """The blocks of a table, the number of its rows, and a table that stands for it."""
    blocks = frame_blocks(frame)
    count, table = sample_rows(blocks, SAMPLE)
    return blocks, count, table


def block_problem(
    read: Formula, frame: Any, prepare: Callable[[dict[str, Any]], AdditiveProblem], checkpoint: Any
) -> AdditiveProblem:
    """The problem of a table in blocks; `prepare` makes that of the table that stands for it."""
    blocks, count, table = open_table(frame)
    sample = prepare(table)
    own = {field.name: getattr(sample, field.name) for field in fields(sample)}
    return BlockProblem(**own, read=read, blocks=blocks, count=count, digest=digest_of(blocks, checkpoint))
