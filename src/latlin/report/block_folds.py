"""Folds of rows in blocks: the rows of every block are dealt out to the folds, and only sums come back.

Which fold a row is in depends on the number of its block and its place there, and on its label where there are labels:
the same files give the same folds, wherever they are worked on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.distributed.blocks import Block, Blocks, MappedBlocks
from latlin.report.baselines import Baseline, Frequencies
from latlin.report.folds import fit_quietly
from latlin.report.held_out import Densities, HeldOut
from latlin.report.tasks import Task, checked_folds

#: rows whose predictions come back, for scores and calibration
MOST_ROWS = 100_000


@dataclass(frozen=True)
class Deal:
    """How the rows of a block are dealt out: shuffled, label after label where there are labels, a card a fold."""

    folds: int
    by_label: bool

    def fold_of(self, block: Block) -> NDArray[np.int64]:
        """The fold of each row.

        Examples
        --------
        >>> block = Block(np.zeros((6, 1)), np.array([0, 0, 0, 1, 1, 1]))
        >>> fold = Deal(3, by_label=True).fold_of(block)
        >>> sorted(fold[:3].tolist()), sorted(fold[3:].tolist())
        ([0, 1, 2], [0, 1, 2])
        """
        order = np.random.default_rng([0, block.number]).permutation(block.n_rows)
        if self.by_label:
            label = np.unique(np.asarray(block.y), return_inverse=True)[1]
            order = order[np.argsort(label[order], kind="stable")]
        fold = np.empty(block.n_rows, np.int64)
        fold[order] = (np.arange(block.n_rows) + block.number) % self.folds
        return fold


@dataclass(frozen=True)
class FoldShare:
    """The rows of a block that are in a fold, or those that are not."""

    deal: Deal
    fold: int
    held_out: bool

    def __call__(self, block: Block) -> Block:
        rows = (self.deal.fold_of(block) == self.fold) == self.held_out
        X, y, weight, offset = (None if values is None else values[rows] for values in block[:4])
        return Block(X, y, weight, offset, block.number)


class Judged(NamedTuple):
    """Of the rows of a block in a fold: log densities in sums, and some rows one by one."""

    log: Densities
    y: NDArray[Any]
    answers: dict[str, NDArray[np.float64]]


def hold_out_blocks(task: Task, estimator: Any, blocks: Blocks, folds: int, advance: Callable[[], None]) -> HeldOut:
    """Predict each row by a model fitted to the other folds."""
    deal = Deal(folds, task.has_labels)
    seen = _targets(blocks, deal, task)
    step = -(-sum(part.count for part in seen) // MOST_ROWS)
    judged: list[Judged] = []
    unconverged = 0
    for fold in range(folds):
        others = reduce(add, [part for place, part in enumerate(seen) if place != fold])
        fitted = fit_quietly(estimator, MappedBlocks(blocks, FoldShare(deal, fold, held_out=False)))
        unconverged += not fitted.converged_
        held = MappedBlocks(blocks, FoldShare(deal, fold, held_out=True))
        each = held.each(_judged, fitted, others, task.ask, step)
        judged += [part for part in each if part is not None]
        advance()
    log = reduce(add, [part.log for part in judged])
    y = np.concatenate([part.y for part in judged])
    answers = {name: np.concatenate([part.answers[name] for part in judged]) for name in judged[0].answers}
    return HeldOut(folds, log, y, answers, getattr(fitted, "classes_", None), unconverged)


def _targets(blocks: Blocks, deal: Deal, task: Task) -> list[Baseline]:
    """What the targets of each fold look like; folds that cannot be are refused."""
    if deal.folds < 2:
        raise ValueError(f"folds must be at least 2, got {deal.folds}")
    parts = blocks.each(_targets_of, deal, task.baseline)
    seen = [reduce(add, part) for part in zip(*parts, strict=True)]
    checked_folds(deal.folds, sum(part.count for part in seen))
    if task.has_labels:
        _refuse_rare(seen)
    return seen


def _refuse_rare(seen: list[Frequencies]) -> None:
    """A class must be in two folds, so that whoever is fitted without one of them knows it."""
    whole = reduce(add, seen)
    for label in whole.classes:
        if sum(label in part.classes for part in seen) < 2:
            raise ValueError(f"the class {label} is in one fold only: it has too few rows to hold some out")


def _targets_of(block: Block, deal: Deal, summary: Callable[[NDArray[Any]], Baseline]) -> list[Baseline]:
    y, fold = np.asarray(block.y), deal.fold_of(block)
    return [summary(y[fold == place]) for place in range(deal.folds)]


def _judged(
    block: Block, fitted: Any, others: Baseline, ask: Callable[..., dict[str, Any]], step: int
) -> Judged | None:
    if not block.n_rows:
        return None
    y = np.asarray(block.y)
    log = Densities.of(fitted.log_predictive_density(block.X, y), others.log_density(y))
    return Judged(log, y[::step], ask(fitted, block.X[::step], y[::step]))
