"""Evidence maximisation over kernel and likelihood parameters: restarts, warm starts, bounds, checkpoints."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import minimize

from latlin.gp.approximation import Fitter, LatentFunction
from latlin.gp.setting import Setting
from latlin.hyper.space import Space
from latlin.numerics.alerts import ConvergenceWarning, alert
from latlin.numerics.archive import read_archive, refuse_unreadable, write_archive
from latlin.numerics.arrays import Array
from latlin.numerics.options import file_path, resolve_choice
from latlin.numerics.progress import Progress, progress
from latlin.numerics.stored import Decoder, Encoder

# --- The checkpoint of a search over parameters: the best ones so far, and what the fitter had chosen by then.


#: kind of file
KIND = "latlin.gp.search"


@dataclass
class Journal:
    """A file that a search writes now and then, and from which the same search goes on.

    Parameters
    ----------
    path : path
    fingerprint : str
        What the search belongs to: options and rows.
    every : float
        Seconds between two writings at least.
    """

    path: str | os.PathLike[str]
    fingerprint: str
    every: float = 10.0
    written: float = -np.inf
    #: the search went on from a file
    went_on: bool = False

    def __post_init__(self) -> None:
        file_path("checkpoint", self.path)

    def note(self, theta: Array, fitter: Fitter, now: bool = False) -> None:
        """Keep these parameters, unless the file was written a moment ago."""
        if not now and time.monotonic() - self.written < self.every:
            return
        encoder = Encoder()
        kept = encoder.encode(_kept(fitter), "fitter")
        header = {"fingerprint": self.fingerprint, "fitter": kept}
        write_archive(self.path, KIND, header, encoder.arrays | {"theta": np.asarray(theta)})
        self.written = time.monotonic()

    def resumed(self, setting: Setting, fitter: Fitter) -> tuple[Setting, Fitter]:
        """Where the search stood, if there is a file."""
        if not os.path.exists(self.path):
            return setting, fitter
        _, header, arrays = read_archive(self.path, KIND)
        with refuse_unreadable(self.path):
            if header["fingerprint"] != self.fingerprint:
                raise ValueError("it belongs to another model or to other rows")
            kept = Decoder(arrays).decode(header["fitter"])
            self.went_on = True
            return setting.at(arrays["theta"]), fitter if kept is None else _resumed(fitter, kept)


def _kept(fitter: Any) -> Any:
    return fitter.kept() if hasattr(fitter, "kept") else None


def _resumed(fitter: Any, kept: Any) -> Fitter:
    found: Fitter = fitter.resumed(kept)
    return found


#: half width, in logarithms, of the box around the first parameters from which restarts are drawn
SPREAD = 2.0
#: relative change of the evidence at which a search ends, unless a fitter has an `accuracy` of its own
ACCURACY = 1e-9
#: smallest and largest eigenvalue of a spread that is taken over, as those of logarithms
SPREADS = (1e-8, 1.0)
#: longest step of a parameter in a search that goes on, the share of the gain that its slope promises which a step must
#: have, by how much one that has it not is shortened, and how often
LONGEST, ENOUGH, SHORTER, TRIALS = 1.0, 1e-4, 0.3, 8
#: change of every parameter below which a search is taken for one that has not left its beginning
HARDLY = 1e-2
#: largest change of a parameter (mostly logarithms) over which a posterior is taken as a start
NEAR = 1.0
#: gains by which the number of evaluations to come is judged
RECENT = 6
#: the search of our own
LBFGSB = "l-bfgs-b"
Optimizer = Callable[..., tuple[Array, float]]


@dataclass(frozen=True)
class Found:
    """Where the search ended: parameters, posterior there, evidence after each evaluation, and how it went.

    `spread` is the inverse of the evidence's negative Hessian in the parameters, as the search saw it, with as many
    `rows`.
    """

    setting: Setting
    latent: LatentFunction
    trace: Array
    converged: bool
    n_iter: int
    message: str
    spread: Array | None = None
    rows: int = 0

    def spread_with(self, rows: int) -> Array | None:
        """The spread with other rows, to whose number the Hessian is proportional; None where it is not known."""
        return None if self.spread is None or not self.rows or not rows else self.spread * (self.rows / rows)


@dataclass
class _Climb:
    """The negative evidence as an optimiser asks for it; remembers the best point and the last latent function."""

    setting: Setting
    fitter: Fitter
    bar: Progress
    space: Space | None = None
    spread: Array | None = None
    journal: Journal | None = None
    trace: list[float] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    last: tuple[Array, LatentFunction] | None = None
    best: tuple[float, Array, LatentFunction | None] = (-np.inf, np.zeros(0), None)

    def __call__(self, theta: Array, eval_gradient: bool = True) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                here = self.setting.at(theta)
                latent, slope = self.fitter.fit_with_gradient(here, self._nearby(theta))
        except ValueError:
            if self.last is None or self.best[2] is None:
                # there is nowhere to turn back to
                raise
            return self._steep_wall(theta, eval_gradient)
        value = latent.posterior.log_evidence
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            raise ValueError(f"the evidence or its gradient is not finite at theta = {theta}")
        self.last = (np.array(theta), latent)
        self.trace.append(value)
        self.bar.advance(f"log evidence {value:.6g}, {self._time_left()}")
        log_prior, pull = (0.0, 0.0) if self.space is None else self.space.log_prior(theta, volume=False)
        total = value + log_prior
        if total > self.best[0]:
            self.best = (total, np.array(theta), latent)
            if self.journal is not None:
                self.journal.note(theta, self.fitter)
        return (-total, -(slope + pull)) if eval_gradient else -total

    def _time_left(self) -> str:
        """How long this search will take yet, by the seconds of an evaluation so far."""
        left = evaluations_left(self.trace, getattr(self.fitter, "accuracy", ACCURACY))
        if left is None:
            return "time left unknown"
        return f"about {left * (time.perf_counter() - self.began) / len(self.trace):.0f} s left"

    def _nearby(self, theta: Array) -> LatentFunction | None:
        """The last latent function if it is near enough to start from; a far one is worse than none."""
        if self.last is None or np.abs(theta - self.last[0]).max(initial=0.0) > NEAR:
            return None
        return self.last[1]

    def _steep_wall(self, theta: Array, eval_gradient: bool) -> Any:
        """A wall where the engine has no answer, so that a line search turns back to where it had one."""
        wall = -self.best[0] + 1e3 * (1.0 + abs(self.best[0]))
        return (wall, np.zeros(len(theta))) if eval_gradient else wall


def evaluations_left(trace: list[float], accuracy: float) -> int | None:
    """How many evaluations a search needs yet, if what it gains goes on shrinking as it did; None at its beginning.

    >>> evaluations_left([-100.0, -10.0, -1.0, -0.1], accuracy=1e-3)
    3
    """
    best = np.maximum.accumulate(trace)
    gains = np.diff(best)[np.diff(best) > 0.0]
    if len(gains) < 2:
        return None
    enough = accuracy * max(abs(float(best[-1])), 1.0)
    # the mean factor between two gains, over the last few of them
    recent = gains[-RECENT:]
    factor = float(np.clip((recent[-1] / recent[0]) ** (1.0 / (len(recent) - 1)), 0.01, 0.9))
    return max(int(np.ceil(np.log(max(enough, 1e-300) / recent[-1]) / np.log(factor))), 1)


def maximise_evidence(
    setting: Setting,
    fitter: Fitter,
    optimizer: str | Optimizer | None,
    n_restarts: int,
    max_iter: int,
    rng: np.random.Generator,
    verbose: bool,
    space: Space | None = None,
    before: Found | None = None,
    journal: Journal | None = None,
) -> Found:
    """The parameters of largest evidence, times the priors of `space`, or those given when `optimizer` is None.

    `before` is a search with another fitter that ended at `setting`: its latent function and its spread are taken over.
    The best parameters so far are kept in `journal`.
    """
    start = None if before is None else before.latent
    if optimizer is None or not len(setting.theta):
        latent = fitter.fit(setting, start, verbose)
        post = latent.posterior
        return Found(setting, latent, post.trace, post.converged, post.n_iter, post.message)
    how = resolve_choice("optimizer", optimizer, {LBFGSB: LBFGSB}, "a callable, or None", callable)
    run = _maximiser(how, max_iter)
    starts = [setting.theta, *_restarts(setting, n_restarts, rng)]
    with progress("evidence", None, verbose) as bar:
        rows = int(getattr(fitter, "n_rows", 0))
        climb = _Climb(setting, fitter, bar, space, None if before is None else before.spread_with(rows), journal)
        outcomes = [_climbed(climb, run, first, start if not n else None) for n, first in enumerate(starts)]
    _, theta, nearest = climb.best
    ended = outcomes[int(np.argmax([outcome.value for outcome in outcomes]))]
    best = setting.at(theta)
    if journal is not None:
        journal.note(theta, fitter, now=True)
    latent = fitter.fit(best, nearest)
    if not ended.converged:
        alert(f"evidence maximisation: {ended.message}; raise max_iter, or set other bounds", ConvergenceWarning)
    count = len(climb.trace) + (0 if before is None else len(before.trace))
    counts = (
        f"{number} {name}{'s' * (number != 1)}" for number, name in ((count, "evaluation"), (len(starts), "start"))
    )
    message = f"{ended.message}, {' from '.join(counts)}"
    n_iter = max(ended.n_iter, 1)
    return Found(best, latent, np.array(climb.trace), ended.converged, n_iter, message, ended.spread, rows)


@dataclass(frozen=True)
class _Outcome:
    value: float
    converged: bool
    n_iter: int
    message: str
    spread: Array | None = None


def _climbed(
    climb: _Climb, run: Callable[[_Climb, Array], _Outcome], theta: Array, start: LatentFunction | None
) -> _Outcome:
    climb.last = None if start is None else (theta, start)
    return run(climb, theta)


def _maximiser(optimizer: str | Optimizer, max_iter: int) -> Callable[[_Climb, Array], _Outcome]:
    if not isinstance(optimizer, str):

        def by_callable(climb: _Climb, start: Array) -> _Outcome:
            _, value = optimizer(climb, start, bounds=climb.setting.bounds)
            return _Outcome(-value, True, len(climb.trace), "ended by the given optimiser")

        return by_callable

    def from_afar(climb: _Climb, start: Array) -> _Outcome:
        accuracy = getattr(climb.fitter, "accuracy", ACCURACY)
        if climb.spread is not None:
            return continue_search(climb, start, climb.spread, climb.setting.bounds, accuracy, max_iter)
        options = {"maxiter": max_iter, "ftol": accuracy}
        found = minimize(climb, start, jac=True, method="L-BFGS-B", bounds=climb.setting.bounds, options=options)
        # a line search that finds nothing better within rounding has arrived too
        arrived = bool(found.success) or found.status == 2
        begun_here = climb.journal is None or not climb.journal.went_on
        if arrived and begun_here and np.abs(climb.best[1] - start).max(initial=0.0) < HARDLY:
            # between bounds L-BFGS-B tries the whole slope first, and may come back from there to where it began
            first = np.eye(len(start)) / max(float(np.linalg.norm(found.jac)), 1.0)
            return continue_search(climb, climb.best[1], first, climb.setting.bounds, accuracy, max_iter)
        spread = found.hess_inv.todense()
        return _Outcome(-float(found.fun), arrived, int(found.nit), _ending(found.status, max_iter), spread)

    return from_afar


def continue_search(
    loss: Callable[[Array], tuple[float, Array]],
    start: Array,
    spread: Array,
    bounds: Array,
    accuracy: float,
    max_iter: int,
) -> _Outcome:
    """A minimum near `start` by quasi-Newton steps from an inverse Hessian that is nearly known (Broyden, Fletcher, …).

    It ends where the next step promises a gain within the accuracy, so that no evaluation only confirms.
    """
    values, vectors = np.linalg.eigh(0.5 * (spread + spread.T))
    inverse = (vectors * np.clip(values, *SPREADS)) @ vectors.T
    theta, (value, slope) = start, loss(start)
    for n in range(max_iter):
        step, promised = _bounded_step(theta, slope, inverse, bounds)
        moved = None
        if promised > accuracy * max(abs(value), 1.0):
            moved = _shortened(loss, theta, value, slope, step, bounds)
        if moved is None:
            return _Outcome(-value, True, n, _ending(0, max_iter), inverse)
        there, value, steeper = moved
        inverse = _updated(inverse, there - theta, steeper - slope)
        theta, slope = there, steeper
    return _Outcome(-value, False, max_iter, _ending(1, max_iter), inverse)


def _bounded_step(theta: Array, slope: Array, inverse: Array, bounds: Array) -> tuple[Array, float]:
    """−Bg among the parameters that may move, no longer than allowed, and ½gᵀBg, what it promises."""
    held = ((theta <= bounds[:, 0]) & (slope > 0.0)) | ((theta >= bounds[:, 1]) & (slope < 0.0))
    free = np.where(held, 0.0, slope)
    step = np.where(held, 0.0, -(inverse @ free))
    promised = -0.5 * float(free @ step)
    return step * min(1.0, LONGEST / max(float(np.abs(step).max(initial=0.0)), 1e-300)), promised


def _shortened(
    loss: Callable[[Array], tuple[float, Array]], theta: Array, value: float, slope: Array, step: Array, bounds: Array
) -> tuple[Array, float, Array] | None:
    """The first of ever shorter steps that has a fair share of what its slope promises; None where none has."""
    for k in range(TRIALS):
        there = np.clip(theta + SHORTER**k * step, *bounds.T)
        found, steeper = loss(there)
        if found <= value + ENOUGH * float(slope @ (there - theta)):
            return there, found, steeper
    return None


def _updated(inverse: Array, step: Array, bend: Array) -> Array:
    """The inverse Hessian with B·bend = step, nearest to the one before; unchanged where the function is not convex."""
    along = float(step @ bend)
    if along <= 1e-8 * float(np.linalg.norm(step) * np.linalg.norm(bend)):
        return inverse
    left = np.eye(len(step)) - np.outer(step, bend) / along
    return np.asarray(left @ inverse @ left.T + np.outer(step, step) / along)


def _ending(status: int, max_iter: int) -> str:
    """How L-BFGS-B ended, in words."""
    return f"stopped at the limit of {max_iter} steps" if status == 1 else "the evidence rises no further"


def _restarts(setting: Setting, count: int, rng: np.random.Generator) -> list[Array]:
    low, high = setting.bounds.T
    theta = setting.theta
    near = np.maximum(low, theta - SPREAD), np.minimum(high, theta + SPREAD)
    return [rng.uniform(*near) for _ in range(count)]
