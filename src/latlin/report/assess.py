"""How good a model is on rows it has not seen: K folds, proper scores, reliability or coverage.

Each row is predicted once, by a model fitted to the other folds. Everything kept is small and plain, so that it can be
stored with a model and shown later without the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from latlin.diagnostics.model_checks import Check, check_baseline
from latlin.distributed.opening import is_blocked, open_blocks
from latlin.report.folds import hold_out, hold_out_blocks
from latlin.report.held_out import HeldOut
from latlin.report.tasks import Task, task_of


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
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    folds: int = 5,
    random_state: int | None = 0,
    advance: Callable[[], None] = lambda: None,
    offset: Any = None,
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
    estimator: Any, X: Any, y: Any = None, *, folds: int = 5, random_state: int | None = 0, offset: Any = None
) -> tuple[float, float]:
    """Mean log predictive density of rows, by models fitted to the other folds, and its error: `assess` in short."""
    task = task_of(estimator).without_questions()
    density = _held_out(task, estimator, X, y, folds, random_state, lambda: None, offset).log.density
    return density.mean, density.error


def _held_out(
    task: Task,
    estimator: Any,
    X: Any,
    y: Any,
    folds: int,
    seed: int | None,
    advance: Callable[[], None],
    offset: Any,
) -> HeldOut:
    if is_blocked(X):
        return hold_out_blocks(task, estimator, open_blocks(X, y), folds, advance)
    return hold_out(task, estimator, X, y, (folds, seed), advance, offset)
