"""The one ascent loop: every iterative fit climbs its objective here.

A step is a pure function of a state. The loop keeps the trace, shows progress, stops when the objective *and*
the gradient (or the change of the parameters) stand still, warns once with numbers and a remedy, writes
checkpoints and resumes from them, and says when an objective that is promised to rise has fallen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from latlin.numerics.alerts import ConvergenceWarning, MonotonicityWarning, alert
from latlin.numerics.archive import read_archive, refuse_unreadable, write_archive
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_number, check_whole, file_path
from latlin.numerics.progress import progress

# --- Anderson mixing: extrapolate a fixed-point iteration x ← F(x) from its last residuals F(x) − x.


def mix(points: Array, residuals: Array, damping: float = 1.0) -> Array:
    """The next iterate from past points and their residuals, one per row, the newest last.

    With differences ΔX, ΔF of consecutive rows, θ = argmin ‖f − ΔF θ‖ and the iterate is x + βf − (ΔX + βΔF) θ, β being
    the damping. A single row gives the plain step x + βf.
    """
    if len(points) == 1:
        return points[-1] + damping * residuals[-1]
    df = np.diff(residuals, axis=0)
    # SciPy's BLAS throughout: NumPy's would wake its own threads in the middle of an engine's loop
    gram = blas.dgemm(1.0, df.T, df.T, trans_a=1)
    # a ridge at rounding level keeps θ bounded when differences are nearly parallel
    gram[np.diag_indices(len(gram))] += 1e-14 * np.trace(gram) + np.finfo(float).tiny
    theta = lapack.dgesv(gram, blas.dgemv(1.0, df.T, residuals[-1], trans=1))[2]
    # the same as a weighted mean of all x + βf, the weights being differences of θ
    weights = np.diff(np.concatenate([[0.0], theta, [1.0]]))
    mixed = blas.dgemv(1.0, points.T, weights)
    return blas.dgemv(damping, residuals.T, weights, beta=1.0, y=mixed, overwrite_y=True)


# --- Backtracking along a direction of ascent.


Point = TypeVar("Point")


def backtrack(
    evaluate: Callable[[float], tuple[float, Point]],
    current: float,
    slope: float,
    *,
    slack: float = 0.0,
    sufficient: float = 1e-4,
    shrink: float = 0.5,
    max_halvings: int = 40,
) -> tuple[float, float, Point] | None:
    """The first step length 1, ½, ¼, … that raises an objective enough (Armijo's rule).

    Parameters
    ----------
    evaluate : callable
        step length → (objective, point there). An objective of −inf marks a point outside the domain.
    current : float
        Objective at step length 0.
    slope : float
        Directional derivative at 0; its share `sufficient` must be gained. May be 0 to ask for no loss only.
    slack : float
        Loss that counts as rounding.

    Returns
    -------
    (step length, objective, point), or None when no step of the sequence helps.
    """
    length = 1.0
    for _ in range(max_halvings):
        objective, point = evaluate(length)
        if objective >= current + sufficient * length * max(slope, 0.0) - slack:
            return length, objective, point
        length *= shrink
    return None


# --- The loop.


State = TypeVar("State", bound=tuple)
#: kind of file
CHECKPOINT = "latlin.checkpoint"
#: largest difference of an objective, relative to 1 + |objective|, between two evaluations of the same step
SAME = 1e-7
#: steps without any progress, to the last digit, after which more would be idle
PATIENCE = 60


class Measure(NamedTuple):
    """What a step reports: the objective, and a size that vanishes at the optimum."""

    objective: float
    gradient: float  # largest absolute gradient entry, or largest change of the parameters
    grain: float = 0.0  # how far rounding of large terms alone moves the objective, where it has been measured


@dataclass(frozen=True)
class Rules:
    """When to stop, and what to promise.

    Parameters
    ----------
    gradient_tol : float
        Largest `Measure.gradient` at convergence.
    objective_tol : float
        Largest change of the objective at convergence, relative to 1 + |objective|.
    max_iter : int
        Steps at most. An objective that stands still to the last digit for `PATIENCE` steps, with a gradient that does
        not fall either, ends the loop earlier.
    monotone : bool
        The objective never falls by more than rounding; a fall gives a `MonotonicityWarning`.
    remedy : str
        What a user can change when it does not converge; ends the warning's text.
    """

    gradient_tol: float = 1e-6
    objective_tol: float = 1e-9
    max_iter: int = 200
    monotone: bool = False
    remedy: str = "raise max_iter"

    def __post_init__(self) -> None:
        for name, value in (("tol", self.gradient_tol), ("objective_tol", self.objective_tol)):
            if not (isinstance(value, float) and value == np.inf):  # no demand on it
                check_number(name, value, least=0.0)
        check_whole("max_iter", self.max_iter, 1)


@dataclass(frozen=True)
class Checkpoint:
    """Where a fit keeps its state, how often (seconds), and what the state belongs to."""

    path: str | os.PathLike[str]
    fingerprint: str
    every: float = 10.0

    def __post_init__(self) -> None:
        file_path("checkpoint", self.path)


@dataclass(frozen=True)
class Ascent(Generic[State]):
    """Where the loop ended and how it got there."""

    state: State
    trace: NDArray[np.float64]
    gradient: float
    converged: bool
    n_iter: int
    elapsed: float
    message: str


def ascend(
    step: Callable[[State], tuple[State, Measure]],
    state: State,
    rules: Rules,
    *,
    label: str = "ascent",
    verbose: bool = False,
    checkpoint: Checkpoint | None = None,
    warn: bool = True,
    evaluate: Callable[[State], float] | None = None,
    shaped: Callable[[State], State] | None = None,
) -> Ascent[State]:
    """Repeat `step` until it converges by `rules`.

    Parameters
    ----------
    step : callable
        state → (next state, `Measure` of the next state). A step that finds nothing better returns the very
        state it was given, and the loop ends there.
    state : NamedTuple of arrays, numbers and such NamedTuples
        Where to start; all that the next step needs, so that it can be written to a checkpoint.
    rules : Rules
    label : str
        Name in the progress bar and in warnings.
    verbose : bool
        Show a progress bar.
    checkpoint : Checkpoint or None
        Write the state there now and then, at the end, and at an interrupt (Ctrl-C); if the file exists, go on from it.
    warn : bool
        Give a `ConvergenceWarning` when the rules are not met; a rough start for another fit needs none.
    evaluate : callable, optional
        state → its objective, computed anew. A checkpoint whose objective differs is refused, as it belongs to another
        model. Needed where a step that finds nothing better trusts the objective that is part of the state; without it
        the last step before the checkpoint is done again.
    shaped : callable, optional
        stored state → a state with the shapes that it must have, where these change on the way; by default they are
        those of the start.

    Examples
    --------
    >>> class Point(NamedTuple):
    ...     x: float
    >>> def halve(p):
    ...     return Point(p.x / 2), Measure(-(p.x**2) / 8, abs(p.x) / 2)
    >>> ascend(halve, Point(1.0), Rules(gradient_tol=1e-3)).n_iter
    16
    """
    started = time.perf_counter()
    before, state, measure, trace = _beginning(checkpoint, state, step, evaluate, shaped)
    best, idle = measure.gradient, 0
    converged = _has_converged(trace, measure, rules)
    with progress(label, rules.max_iter, verbose) as bar, _Keeper(checkpoint, label) as keeper:
        while not converged and len(trace) < rules.max_iter:
            before = state
            state, measure = step(state)
            trace.append(float(measure.objective))
            _check_rise(trace, measure, rules, label)
            converged = _has_converged(trace, measure, rules)
            best, idle = _idleness(trace, measure, best, idle)
            if state is before or idle >= PATIENCE:
                break
            bar.advance(f"objective {measure.objective:.6g}, gradient {measure.gradient:.1e}")
            keeper.keep(before, state, measure, trace)
    if checkpoint is not None and trace:
        _save(checkpoint, before, state, measure, trace)
    message = _verdict(trace, measure, converged, rules, label)
    if warn and not converged:
        alert(message, ConvergenceWarning)
    elapsed = time.perf_counter() - started
    return Ascent(state, np.array(trace), float(measure.gradient), converged, len(trace), elapsed, message)


def _beginning(
    checkpoint: Checkpoint | None,
    state: State,
    step: Callable[[State], tuple[State, Measure]],
    evaluate: Callable[[State], float] | None,
    shaped: Callable[[State], State] | None,
) -> tuple[State, State, Measure, list[float]]:
    """Where an earlier loop was, if there is a checkpoint of one, else where this one starts."""
    if checkpoint is not None and os.path.exists(checkpoint.path):
        return _resume(checkpoint, state, step, evaluate, shaped or (lambda _: state))
    return state, state, Measure(-np.inf, np.inf), []


class _Keeper:
    """Writes what a loop has reached to its checkpoint: now and then, and what it reached last when interrupted."""

    def __init__(self, checkpoint: Checkpoint | None, label: str) -> None:
        self._checkpoint, self._label, self._saved = checkpoint, label, time.perf_counter()
        self._reached: tuple[Any, Any, Measure, list[float], int] | None = None

    def keep(self, before: Any, state: Any, measure: Measure, trace: list[float]) -> None:
        if self._checkpoint is None:
            return
        self._reached = before, state, measure, trace, len(trace)
        if time.perf_counter() - self._saved > self._checkpoint.every:
            _save(self._checkpoint, before, state, measure, trace)
            self._saved = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if not isinstance(error, KeyboardInterrupt) or self._checkpoint is None or self._reached is None:
            return
        before, state, measure, trace, steps = self._reached
        _save(self._checkpoint, before, state, measure, trace[:steps])
        error.add_note(
            f"{self._label}: what {steps} steps reached is in {os.fspath(self._checkpoint.path)}; "
            "the same fit with the same checkpoint goes on from there"
        )


def _idleness(trace: list[float], measure: Measure, best: float, idle: int) -> tuple[float, int]:
    """The gradient when something last moved, and for how many steps neither it nor the objective has."""
    moved = len(trace) < 2 or abs(trace[-1] - trace[-2]) > 1e-15 * abs(trace[-1])
    if moved or measure.gradient < 0.9 * best:
        return measure.gradient, 0
    return best, idle + 1


#: standard deviations from the optimum, in units of the tolerance, where rounding hides any gain
HIDDEN = 1e-2
#: units in the last place of an objective that mean nothing
LAST = 2.0


def gradient_or_distance(
    gradient: float, before: float, gain: float, objective: float, distance: Callable[[], float], grain: float = 0.0
) -> float:
    """The gradient; where a step has gained nothing but rounding, at most the distance from the optimum.

    Terms of 10¹⁰ leave a gradient that no step can lower, however near the optimum: there it counts how many standard
    deviations it is away, which must be a hundred times fewer than the tolerance, or within it where rounding is known
    to hide the gain: it was measured, or only the last digits of the objective moved and the gradient did not fall.
    """
    if abs(gain) <= 1e-2 * rounding(objective):
        idle = gradient >= before and abs(gain) <= LAST * np.spacing(abs(objective))
        return min(gradient, distance() / (1.0 if idle or grain > rounding(objective) else HIDDEN))
    return min(gradient, distance()) if abs(gain) <= grain else gradient


def rounding(objective: float) -> float:
    """How far an objective of this size may fall by rounding alone."""
    return 1e-10 * (1.0 + abs(objective))


#: gains of a step, relative to 1 + |objective|, that rounding may have made, and the share of the gradient left then
FAINT, UNMOVED = 1e-6, 0.5


def grain(evaluate: Callable[[Array], float | None], point: Array, objective: float) -> float:
    """How far rounding alone moves an objective: twice its largest change when the last digits of a point change.

    Terms of 10⁹ that nearly cancel, as of counts among many trials, leave an objective of 75 with an error of 10⁻⁶: a
    step that loses less has not failed. The gradient, whose terms are as large, is nearer to the truth in units of the
    narrow posterior.
    """
    changes = [float(np.finfo(float).tiny)]
    for digits in (1.0, -1.0, 2.0, -2.0):
        moved = evaluate(point + digits * np.spacing(point))
        if moved is not None and np.isfinite(moved):
            changes.append(2.0 * abs(moved - objective))
    return float(max(changes))


def may_be_rounding(gain: float, objective: float, known: float, gradient: float, before: float) -> bool:
    """Whether a step may have failed by rounding alone, so that its `grain` is worth measuring.

    It gained next to nothing and left the gradient as it was; where steps succeed, the gradient falls with the gain.
    """
    return known == 0.0 and gradient > UNMOVED * before and abs(gain) <= FAINT * (1.0 + abs(objective))


def _has_converged(trace: list[float], measure: Measure, rules: Rules) -> bool:
    if not (trace and measure.gradient <= rules.gradient_tol):
        return False
    change = abs(trace[-1] - trace[-2]) if len(trace) > 1 else 0.0
    return change <= _least_change(trace, measure, rules)


def _least_change(trace: list[float], measure: Measure, rules: Rules) -> float:
    return rules.objective_tol * (1.0 + abs(trace[-1])) + measure.grain


def _check_rise(trace: list[float], measure: Measure, rules: Rules, label: str) -> None:
    if not np.isfinite(trace[-1]):
        raise ValueError(
            f"{label}: the objective became {trace[-1]} at step {len(trace)}; "
            "rescale the columns of H, or start from another posterior"
        )
    if rules.monotone and len(trace) > 1 and trace[-1] < trace[-2] - rounding(trace[-2]) - measure.grain:
        fall = trace[-2] - trace[-1]
        text = f"{label}: the bound fell by {fall:.3g} at step {len(trace)}, from {trace[-2]:.12g}"
        alert(text, MonotonicityWarning)


def _verdict(trace: list[float], measure: Measure, converged: bool, rules: Rules, label: str) -> str:
    numbers = f"gradient {measure.gradient:.2g} (tolerance {rules.gradient_tol:.2g})"
    steps = f"{len(trace)} step{'s' * (len(trace) != 1)}"
    if converged:
        return f"{label} converged in {steps}: {numbers}"
    # only what is missing is said: a gradient within its tolerance is no reason
    change = abs(trace[-1] - trace[-2]) if len(trace) > 1 else np.inf
    limit = _least_change(trace, measure, rules)
    reasons = [numbers] if not measure.gradient <= rules.gradient_tol else []
    if not change <= limit or not reasons:
        reasons.append(f"last change of the objective {change:.2g} (tolerance {limit:.2g})")
    return f"{label} did not converge in {steps}: {', '.join(reasons)}; {rules.remedy}"


def _save(checkpoint: Checkpoint, before: Any, state: Any, measure: Measure, trace: list[float]) -> None:
    """Write what a loop has reached, and from where its last step went: that step is done again on resuming."""
    header = {"fingerprint": checkpoint.fingerprint, "state": type(state).__name__}
    numbers = {"trace": np.array(trace), "measure": np.array(measure)}
    arrays = _flattened("state_", state) | _flattened("before_", before) | numbers
    write_archive(checkpoint.path, CHECKPOINT, header, arrays)


def _flattened(name: str, value: Any) -> dict[str, NDArray[Any]]:
    if not hasattr(value, "_asdict"):
        return {name: np.asarray(value)}
    parts = (_flattened(f"{name}{field}.", part) for field, part in value._asdict().items())
    return {key.rstrip("."): array for part in parts for key, array in part.items()}


def _like(template: Any, name: str, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """What `_flattened` took apart, in the form of `template`."""
    if not hasattr(template, "_asdict"):
        value = arrays[name.rstrip(".")]
        if value.dtype.kind not in "biuf":
            raise ValueError(f"{name.rstrip('.')} must be an array of numbers")
        return value.item() if value.ndim == 0 else value
    return type(template)(*(_like(part, f"{name}{field}.", arrays) for field, part in template._asdict().items()))


def _check_shapes(template: Any, stored: Any, name: str) -> None:
    """Every part has the shape of the template's; tables that are empty at first are histories, all of one length."""
    expected, found = (_flattened(name, state) for state in (template, stored))
    lengths: set[int] = set()
    for part, array in found.items():
        shape = expected[part].shape
        if len(shape) == array.ndim <= 2 and shape[:1] == (0,):
            shape = (len(array), *shape[1:])
            lengths |= {len(array)} if len(shape) == 2 and shape[1] else set()
        if array.shape != shape:
            raise ValueError(f"{part} must be an array of numbers of shape {shape}, got one of shape {array.shape}")
    if len(lengths) > 1:
        raise ValueError(f"the histories of {name.rstrip('_')} must be of one length, got {sorted(lengths)}")


def _resume(
    checkpoint: Checkpoint,
    template: Any,
    step: Callable[[Any], tuple[Any, Measure]],
    evaluate: Callable[[Any], float] | None,
    shaped: Callable[[Any], Any],
) -> tuple[Any, Any, Measure, list[float]]:
    """What a checkpoint holds, if it has the same objective under the present model."""
    _, header, arrays = read_archive(checkpoint.path, CHECKPOINT)
    other = ValueError(
        f"checkpoint {os.fspath(checkpoint.path)} belongs to another model or engine; "
        "name another file, or delete this one to start anew"
    )
    if header.get("fingerprint") != checkpoint.fingerprint or header.get("state") != type(template).__name__:
        raise other
    with refuse_unreadable(checkpoint.path):
        state, before = (_like(template, name, arrays) for name in ("state_", "before_"))
        for name, stored in (("state_", state), ("before_", before)):
            _check_shapes(shaped(stored), stored, name)
        measure, trace = Measure(*arrays["measure"].tolist()), arrays["trace"].tolist()
        if not trace or not all(isinstance(value, float) for value in (*measure, *trace)):
            raise ValueError("its trace and measure must be arrays of numbers")
    again = float(step(before)[1].objective if evaluate is None else evaluate(state))
    if not abs(again - trace[-1]) <= SAME * (1.0 + abs(trace[-1])):
        raise other
    return before, state, measure, trace
