"""How good a model is on rows it has not seen: K folds, proper scores, reliability or coverage.

Each row is predicted once, by a model fitted to the other folds. Everything kept is small and plain, so that it can be
stored with a model and shown later without the data.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

from latlin.diagnostics.model_checks import Check, check_baseline
from latlin.distributed.blocks import Block, Blocks, MappedBlocks
from latlin.distributed.opening import is_blocked, open_blocks
from latlin.numerics.alerts import ConvergenceWarning, MisfitWarning
from latlin.numerics.arrays import Array
from latlin.numerics.options import PerRow, Rows, real_array
from latlin.numerics.rng import generator
from latlin.report.baselines import Baseline, Densities, HeldOut
from latlin.report.tasks import Task, check_folds, task_of

# --- Folds of rows in memory: shuffled with the classes in equal shares, by groups, or in the order of time.
#
# Rows in blocks are dealt out to the folds block by block, and only sums come back. Which fold a row is in depends on
# the number of its block and its place there, and on its label where there are labels: the same files give the same
# folds, wherever they are worked on.

Split = tuple[NDArray[np.intp], NDArray[np.intp]]


def grouped_splits(groups: Any, y: PerRow, folds: int, labelled: bool) -> list[Split]:
    """Folds in which the rows of one group are held out together."""
    names, place = np.unique(np.asarray(groups), return_inverse=True)
    if not 2 <= folds <= len(names):
        raise ValueError(f"folds must be between 2 and the number of groups, {len(names)}, got {folds}")
    chosen = StratifiedGroupKFold(folds, shuffle=True, random_state=0) if labelled else GroupKFold(folds)
    return list(chosen.split(np.zeros(len(place)), y, place))


def ordered_splits(times: Any, folds: int) -> list[Split]:
    """Folds in which rows are predicted from earlier ones only; rows of the same time stay together.

    Examples
    --------
    >>> [(train.tolist(), test.tolist()) for train, test in ordered_splits([3, 1, 2, 2], 2)]
    [([1], [2, 3]), ([1, 2, 3], [0])]
    """
    place = np.unique(np.asarray(times), return_inverse=True)[1]
    count = int(place.max()) + 1
    if not 1 <= folds < count:
        raise ValueError(f"folds must be below the number of different times, {count}, got {folds}")
    ends = np.linspace(0, count, folds + 2).round().astype(int)[1:]
    pairs = pairwise(ends)
    return [(np.flatnonzero(place < low), np.flatnonzero((place >= low) & (place < high))) for low, high in pairs]


def held_out_densities(
    estimator: BaseEstimator, X: Rows, y: PerRow, splits: Sequence[Split], offset: PerRow = None
) -> Array:
    """Log predictive density of every row by a model fitted to its training rows; NaN for rows never held out."""
    y, density = np.asarray(y), np.full(len(y), np.nan)
    for train, test in splits:
        fitted = fit_quietly(estimator, _rows(X, train), y[train], **_offsets(offset, train))
        density[test] = fitted.log_predictive_density(_rows(X, test), y[test], **_offsets(offset, test))
    return density


def usual_splits(task: Task, y: PerRow, folds: int, seed: int | None = 0) -> list[Split]:
    """Folds of shuffled rows, with the classes in equal shares."""
    y = np.asarray(y)
    folds = min(check_folds(folds, len(y)), task.most_folds(y))
    return list(task.split(folds, seed).split(np.zeros(len(y)), y))


def hold_out(
    task: Task,
    estimator: BaseEstimator,
    X: Rows,
    y: PerRow,
    how: tuple[int, int | None],
    advance: Callable[[], None],
    offset: PerRow = None,
) -> HeldOut:
    """Predict each row by a model fitted to the other folds; `how` is their number and the seed of the split."""
    X, y = _numbers(X), np.asarray(y)
    if not y.ndim or not getattr(X, "shape", ()) or len(y) != X.shape[0]:
        raise ValueError(f"X and y must have as many rows, got {type(X).__name__} and shape {y.shape}")
    if offset is not None and real_array("offset", offset).shape != (len(y),):
        raise ValueError(f"offset must have one number per row, {len(y)}, got shape {np.shape(offset)}")
    generator(how[1])
    if how[1] is not None and how[1] >= 2**32:
        raise ValueError(f"random_state must be below 2**32, got {how[1]!r:.80}")
    folds = min(check_folds(how[0], len(y)), task.most_folds(y))
    density, baseline = np.empty(len(y)), np.empty(len(y))
    answers: dict[str, Array] = {}
    unconverged = 0
    for train, test in task.split(folds, how[1]).split(np.zeros(len(y)), y):
        fitted = fit_quietly(estimator, _rows(X, train), y[train], **_offsets(offset, train))
        unconverged += not fitted.converged_
        density[test] = fitted.log_predictive_density(_rows(X, test), y[test], **_offsets(offset, test))
        bare = task.baseline(y[train], **_offsets(offset, train))
        baseline[test] = bare.log_density(y[test], **_offsets(offset, test))
        for name, values in task.ask(fitted, _rows(X, test), y[test], **_offsets(offset, test)).items():
            answers.setdefault(name, np.empty((len(y), *values.shape[1:])))[test] = values
        advance()
    return HeldOut(folds, Densities.of(density, baseline), y, answers, getattr(fitted, "classes_", None), unconverged)


def fit_quietly(estimator: BaseEstimator, X: Rows, y: PerRow = None, **more: Any) -> Any:
    """A fitted clone; `converged_` and `checks_` say what it would warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MisfitWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(estimator).fit(X, y, **more)


def _numbers(X: Rows) -> Any:
    """A data frame of plain numbers as an array: names of columns are nothing to folds, and cost time when many."""
    plain = hasattr(X, "iloc") and set(X.dtypes) == {np.dtype(float)}
    return X.to_numpy() if plain else X


def _rows(X: Rows, index: Any) -> Any:
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


def _offsets(offset: PerRow, index: Any) -> dict[str, Any]:
    return {} if offset is None else {"offset": np.asarray(offset)[index]}


#: rows whose predictions come back, for scores and calibration
MOST_ROWS = 100_000


@dataclass(frozen=True)
class FoldAssignment:
    """How the rows of a block are dealt out: shuffled, label after label if there are labels, to the folds in turn."""

    folds: int
    by_label: bool

    def fold_of(self, block: Block) -> NDArray[np.int64]:
        """The fold of each row.

        Examples
        --------
        >>> block = Block(np.zeros((6, 1)), np.array([0, 0, 0, 1, 1, 1]))
        >>> fold = FoldAssignment(3, by_label=True).fold_of(block)
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

    deal: FoldAssignment
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


def hold_out_blocks(
    task: Task, estimator: BaseEstimator, blocks: Blocks, folds: int, advance: Callable[[], None]
) -> HeldOut:
    """Predict each row by a model fitted to the other folds."""
    deal = FoldAssignment(folds, task.has_labels)
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


def _targets(blocks: Blocks, deal: FoldAssignment, task: Task) -> list[Baseline]:
    """What the targets of each fold look like; folds that cannot be are refused."""
    if deal.folds < 2:
        raise ValueError(f"folds must be at least 2, got {deal.folds}")
    parts = blocks.each(_targets_of, deal, task.baseline)
    seen = [reduce(add, part) for part in zip(*parts, strict=True)]
    check_folds(deal.folds, sum(part.count for part in seen))
    if task.has_labels:
        _refuse_rare(seen)
    return seen


def _refuse_rare(seen: list[Any]) -> None:
    """A class must be in two folds, so that whoever is fitted without one of them knows it."""
    whole = reduce(add, seen)
    for label in whole.classes:
        if sum(label in part.classes for part in seen) < 2:
            raise ValueError(f"the class {label} is in one fold only: it has too few rows to hold some out")


def _targets_of(block: Block, deal: FoldAssignment, summary: Callable[..., Baseline]) -> list[Baseline]:
    y, fold = np.asarray(block.y), deal.fold_of(block)
    return [summary(y[fold == place], **_offsets(block.offset, fold == place)) for place in range(deal.folds)]


def _judged(
    block: Block, fitted: Any, others: Baseline, ask: Callable[..., dict[str, Any]], step: int
) -> Judged | None:
    if not block.n_rows:
        return None
    y = np.asarray(block.y)
    every, some = (_offsets(block.offset, rows) for rows in (slice(None), slice(None, None, step)))
    log = Densities.of(fitted.log_predictive_density(block.X, y, **every), others.log_density(y, **every))
    return Judged(log, y[::step], ask(fitted, block.X[::step], y[::step], **some))


@dataclass(frozen=True)
class Assessment:
    """Held-out predictions in a few numbers.

    Attributes
    ----------
    folds, rows : int
    log_density, log_density_error : float
        Mean log predictive density (or probability) per row, in nat, and its standard error.
    baseline : float
        The same of a model that ignores the features.
    gain_error : float
        Standard error of `log_density` − `baseline`, row by row.
    scores : dict
        Name → number: accuracy and Brier score, root mean square error and R², or share below and loss of a quantile.
    curve : list of dict
        predicted, observed, low, high, size: groups of probabilities, or promised coverages.
    curve_kind : {"probability", "confidence", "coverage", "quantile"}
        Of the second class; of the class found most probable; of intervals; below a quantile.
    points : list of [predicted, observed]
        Some rows, for numeric targets.
    unconverged : int
        Folds whose fit did not converge.
    pit : list of float
        Shares of probability integral transforms of held-out rows in even bins from zero to one; empty for labels and
        quantiles.
    checks : list of Check
        Whether the baseline was beaten, and whether intervals or probabilities hold what they promise.
    """

    folds: int
    rows: int
    log_density: float
    log_density_error: float
    baseline: float
    gain_error: float
    scores: dict[str, float]
    curve: list[dict[str, float]]
    curve_kind: str
    points: list[list[float]]
    unconverged: int = 0
    pit: list[float] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Assessment:
        """Back from a JSON object, every number checked to be one."""
        return cls(
            folds=int(stored["folds"]),
            rows=int(stored["rows"]),
            log_density=float(stored["log_density"]),
            log_density_error=float(stored["log_density_error"]),
            baseline=float(stored["baseline"]),
            gain_error=float(stored["gain_error"]),
            scores={str(name): float(value) for name, value in stored["scores"].items()},
            curve=[{str(key): float(value) for key, value in group.items()} for group in stored["curve"]],
            curve_kind=str(stored["curve_kind"]),
            points=[[float(value) for value in point] for point in stored["points"]],
            unconverged=int(stored["unconverged"]),
            pit=[float(share) for share in stored.get("pit", [])],
            checks=read_checks(stored.get("checks", ())),
        )


def assess(
    estimator: BaseEstimator,
    X: Rows,
    y: PerRow = None,
    *,
    folds: int = 5,
    random_state: int | None = 0,
    advance: Callable[[], None] = lambda: None,
    offset: PerRow = None,
) -> Assessment:
    """K-fold cross-validation of a regression or classification estimator of `latlin.linear`.

    Parameters
    ----------
    estimator : estimator
        Fitted or not; clones of it are fitted.
    X : array or data frame of shape (n, n_features), or rows in blocks
        Of blocks, a fifth (or whatever `folds` says) of each is held out at a time, chosen at random but the same
        in every run; nothing but sums and some rows' predictions comes back.
    y : array of shape (n,), or in blocks like X
    folds : int
    random_state : int or None
        For the split of rows in memory.
    advance : callable
        Called after each fold, for a progress bar.
    offset : array of shape (n,), optional
        Added to the linear predictors; rows in blocks hold their own.
    """
    task = task_of(estimator)
    seen = _held_out(task, estimator, X, y, folds, random_state, advance, offset)
    summed = task.sum_up(seen)
    summed["checks"].insert(0, check_baseline(seen.log.gain.mean, seen.log.gain.error, seen.log.gain.count))
    return Assessment(
        seen.folds,
        seen.log.density.count,
        seen.log.density.mean,
        seen.log.density.error,
        seen.log.baseline.mean,
        seen.log.gain.error,
        unconverged=seen.unconverged,
        **summed,
    )


def read_checks(stored: Iterable[Sequence[Any]]) -> list[Check]:
    """Checks of a model from JSON lists, every part of its type."""
    return [Check(str(name), bool(passed), str(said), str(remedy)) for name, passed, said, remedy in stored]


def held_out_score(
    estimator: BaseEstimator,
    X: Rows,
    y: PerRow = None,
    *,
    folds: int = 5,
    random_state: int | None = 0,
    offset: PerRow = None,
) -> tuple[float, float]:
    """Mean log predictive density of rows, by models fitted to the other folds, and its error: `assess` in short."""
    task = task_of(estimator).without_questions()
    density = _held_out(task, estimator, X, y, folds, random_state, lambda: None, offset).log.density
    return density.mean, density.error


def _held_out(
    task: Task,
    estimator: BaseEstimator,
    X: Rows,
    y: PerRow,
    folds: int,
    seed: int | None,
    advance: Callable[[], None],
    offset: PerRow,
) -> HeldOut:
    if is_blocked(X):
        return hold_out_blocks(task, estimator, open_blocks(X, y), folds, advance)
    return hold_out(task, estimator, X, y, (folds, seed), advance, offset)
