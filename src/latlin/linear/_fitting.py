"""Fit one problem: settle which hyperparameters are given and which are learnt, choose the engine, run it.

Gaussian noise has a closed form for every prior scale and noise scale at once; it stands below.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import svd

from latlin.densities.precision import DiagonalWhitening
from latlin.distributed.blocks import Block, add
from latlin.hyper.space import Evaluation
from latlin.inference.affine.engine import AffineKL
from latlin.inference.blocks import BlockModel, Reading, read_pieces
from latlin.inference.engine import Engine
from latlin.inference.exact import Exact, conclude
from latlin.inference.forms.dense import sum_form
from latlin.inference.forms.prior import gaussian_part
from latlin.inference.forms.projections import whitened_projections
from latlin.inference.forms.sums import Sums
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.inference.infer import Auto, choose, resolve
from latlin.inference.laplace import MAP, Laplace
from latlin.inference.local_bound.engine import LocalBound
from latlin.inference.posterior import Posterior
from latlin.linear._learning import (
    ARGUMENTS,
    NARROW,
    PLAIN,
    Accuracy,
    Learning,
    LearningTask,
    LearntFit,
    Unknowns,
    fit_of,
    fixed_table,
    learn,
    ranges_of,
)
from latlin.linear._problem import GaussianPrior, HeldRows, LinearProblem, LocatedPrior, Targets
from latlin.numerics.arrays import LOG_2PI, SMALLEST, Array, check_summable, check_visible
from latlin.numerics.linalg import dot, symmetrise
from latlin.numerics.options import is_name
from latlin.numerics.progress import show_beginning
from latlin.numerics.threads import blas_threads_for, one_blas_thread
from latlin.potentials.checks import finite
from latlin.potentials.ranges import Increasing, Positive, Range

AUTO = "auto"
#: what may be given for every feature
PER_FEATURE = ("prior_scale", "prior_mean")
Path = str | os.PathLike[str]
#: entries of X up to which a fit goes on to nearly all digits, so that equal problems give equal answers
SMALL = 20_000
FINE = Accuracy(gradient=1e-7, gain=1e-15)
FINER_STILL = Accuracy(gradient=1e-9, gain=1e-15)
FINER: dict[str, Engine] = {"gkl": GaussianKL(tol=1e-9), "laplace": Laplace(tol=1e-9), "lvb": LocalBound(tol=1e-9)}


def settle_hyperparameters(
    problem: LinearProblem, given: Mapping[str, Any], ard: bool
) -> tuple[dict[str, Any], list[str]]:
    """Every hyperparameter with a number to start from, and the names of those to learn."""
    if ard and not is_name(given["prior_scale"], AUTO):
        raise ValueError(
            f"ard=True learns one prior scale per feature: it needs prior_scale='auto', got {given['prior_scale']!r}"
        )
    scale = np.full(problem.design.n_features, problem.unit) if ard else problem.unit
    first = {"prior_scale": scale, **problem.prior.first(), **problem.family.first(problem.targets)}
    ranges, count = ranges_of(problem), problem.design.n_features
    known = {n: first[n] if is_name(v, AUTO) else _checked(n, v, ranges[n], count) for n, v in given.items()}
    return known, [name for name, value in given.items() if is_name(value, AUTO)]


def _checked(name: str, value: Any, span: Range, n_features: int) -> Any:
    argument = ARGUMENTS.get(name, name)
    try:
        array = np.asarray(check_visible(argument, np.asanyarray(value)), float)
    except (TypeError, ValueError, OverflowError) as error:
        kind = "a number" if name == "prior_mean" else "a positive number"
        raise ValueError(f"{argument} must be {kind} or 'auto', got {value!r:.80}") from error
    if isinstance(span, Increasing):
        return span.check(argument, array)
    shapes: tuple[tuple[int, ...], ...] = ((), (n_features,)) if name in PER_FEATURE else ((),)
    if array.shape not in shapes:
        raise ValueError(
            f"{argument} must be 'auto' or have shape {' or '.join(map(str, shapes))}, got shape {array.shape}"
        )
    if isinstance(span, Positive) and not np.all(np.isfinite(array) & (array > 0.0)):
        raise ValueError(f"{argument} must be positive and finite, got {value!r}")
    if isinstance(span, Positive) and np.any(array < SMALLEST):
        raise ValueError(f"{argument} must be at least {SMALLEST:g}, got {array.min():g}: change the units")
    check_summable(argument, array)
    if name == "prior_mean":  # one that is given may be beyond where it would be sought
        finite(argument, array)
    else:
        span.check(argument, array)
    return float(array) if array.ndim == 0 else array


def fit_problem(
    problem: LinearProblem,
    engine: str | Engine,
    values: Mapping[str, Any],
    free: Sequence[str],
    start: Posterior | None = None,
    verbose: bool = False,
    checkpoint: Path | None = None,
    wish: Learning = Learning(),  # noqa: B008
) -> LearntFit:
    """The posterior, its free hyperparameters maximised or integrated."""
    with name_wide_priors(problem, values), blas_threads_for(problem.longest_product()):
        return _fit(problem, engine, values, free, start, verbose, checkpoint, wish)


def _fit(
    problem: LinearProblem,
    engine: str | Engine,
    values: Mapping[str, Any],
    free: Sequence[str],
    start: Posterior | None,
    verbose: bool,
    checkpoint: Path | None,
    wish: Learning,
) -> LearntFit:
    small = problem.n_entries <= SMALL
    chosen, reason = choose_engine(problem, engine, values, free, small)
    task = learning_task(wish, chosen, small, problem.design.dim, verbose)
    if isinstance(chosen, Exact) and isinstance(problem.prior, GaussianPrior) and not _learns_many(values, free):
        decompose, posterior_at = closed_form(problem)
        if free:
            return learn_exactly(problem, decompose, posterior_at, values, free, task)
        return LearntFit(posterior_at(values), dict(values), table=fixed_table(values))
    if free:
        _refuse_wide_cuts(problem, values, free)
        fit = learn(problem, chosen, values, free, task, start, checkpoint)
    else:
        with show_beginning(chosen.name, verbose):
            posterior = chosen.run(problem.model(values), start=start, verbose=verbose, checkpoint=checkpoint)
        fit = LearntFit(posterior, dict(values), table=fixed_table(values))
    if not reason:
        return fit
    message = f"auto: {reason}; {fit.posterior.message}"
    return fit._replace(posterior=replace(fit.posterior, message=message))


#: prior standard deviations, in their unit, beyond which precisions may be lost in rounding
WIDEST = 1e6


def _refuse_wide_cuts(problem: LinearProblem, values: Mapping[str, Any], free: Sequence[str]) -> None:
    """Cut points are sought in the units of the coefficients: where these have no end, a search has none."""
    scale, most = float(np.max(values["prior_scale"])), WIDEST * max(problem.unit, 1.0)
    if "cuts" in free and "prior_scale" not in free and scale > most:
        raise ValueError(
            f"prior_scale must be at most {most:g} where cuts are learnt, got {scale:.3g}: cut points grow with the "
            "coefficients; give a smaller scale, or cuts"
        )


@contextmanager
def name_wide_priors(problem: LinearProblem, values: Mapping[str, Any]) -> Iterator[None]:
    """What a fit lost to rounding under a very wide prior is said with the name of its scale."""
    try:
        yield
    except ValueError as error:
        scale = max(float(np.max(values["prior_scale"])), problem.intercept[1])
        if scale <= WIDEST * max(problem.unit, 1.0) or "positive definite" not in str(error):
            raise
        raise ValueError(f"prior_scale or intercept_scale is too large for a fit, got {scale:.3g}: {error}") from error


def learning_task(wish: Learning, engine: Engine, small: bool, dim: int, verbose: bool) -> LearningTask:
    """How far to go, and whether tens of fits are cheap: those of engines without inner loops on small problems."""
    quick = isinstance(engine, Exact | GaussianKL | Laplace | LocalBound)
    accuracy = FINER_STILL if isinstance(engine, Exact) else FINE if small else PLAIN
    return LearningTask(wish, accuracy, small and quick and dim <= NARROW, verbose)


def choose_engine(
    problem: LinearProblem, engine: str | Engine, values: Mapping[str, Any], free: Sequence[str], small: bool
) -> tuple[Engine, str]:
    """The engine to run, and why where it was chosen here; small problems are fitted to more digits."""
    named = resolve_engine(engine, free, small)
    if not isinstance(named, Auto):
        return named, ""
    chosen, reason = choose(problem.model(values))
    if chosen == GaussianKL():
        if problem.has_gaussian_noise and isinstance(problem.prior, GaussianPrior | LocatedPrior):
            return Exact(), ""
        return (FINER["gkl"] if small else chosen), reason
    if free and isinstance(chosen, AffineKL):
        return (FINER["gkl"] if small else GaussianKL()), "hyperparameters are learnt, for which a Gaussian serves"
    return chosen, reason


def _learns_many(values: Mapping[str, Any], free: Sequence[str]) -> bool:
    """One prior scale per feature is to be learnt."""
    return "prior_scale" in free and np.ndim(values["prior_scale"]) > 0


def resolve_engine(engine: str | Engine, free: Sequence[str], small: bool) -> Engine:
    """The engine by its name, to more digits for a small problem; one without an evidence can learn nothing."""
    named = resolve(engine)
    if free and isinstance(named, MAP):
        names = ", ".join(f"{ARGUMENTS.get(name, name)}='auto'" for name in free)
        raise ValueError(
            f"{names} needs an evidence, and engine 'map' has none: give numbers, or use 'laplace' or 'gkl'"
        )
    return FINER.get(engine, named) if small and isinstance(engine, str) else named


def number_checkpoint(checkpoint: Path | None, index: int, count: int) -> Path | None:
    """The file of one of several fits."""
    return checkpoint if checkpoint is None or count == 1 else f"{os.fspath(checkpoint)}.{index}"


# --- Gaussian noise: the evidence for every prior scale and noise scale at once.
#
# With Z = W^{½} X / spread, a = W^{½} 1 and c = W^{½}(y − offset − b₀), the observations have covariance
#
#     M + τ² aaᵀ,   M = s² ZZᵀ + σ² I
#
# and one singular value decomposition of Z turns M into numbers: each evaluation costs O(min(N, D)), and the
# intercept's wide prior is a rank-one update. Challis (2013), §2.2.1 and (2.2.10).


def learn_exactly(
    problem: LinearProblem,
    decompose: Callable[[Any], Spectrum],
    posterior_at: Callable[[dict[str, Any]], Posterior],
    values: Mapping[str, Any],
    free: Sequence[str],
    task: LearningTask,
) -> LearntFit:
    """Learn "prior_scale" and "scale" of a Gaussian model from its spectrum; posteriors only where they are needed.

    `decompose` gives the spectrum of the problem for relative prior scales.
    """
    unknowns = Unknowns(problem, values, free, task.wish.priors)
    single = np.ndim(values["prior_scale"]) == 0
    data = decompose(1.0 if single else values["prior_scale"])

    def evaluate(numbers: dict[str, float], before: Any, slopes: bool) -> Evaluation:
        found = unknowns.assembled(numbers)
        scale = float(found["prior_scale"]) if single else 1.0
        value, gradient = data.log_evidence(float(np.log(scale)), float(np.log(found["scale"])))
        by_name = {"prior_scale": gradient[0] / scale, "scale": gradient[1] / found["scale"]}
        return Evaluation(value, unknowns.slopes({name: by_name[name] for name in free}), None)

    with one_blas_thread():  # a value takes some vectors as long as the spectrum
        learnt = task.run(unknowns.space, evaluate, curvature=True)
    fitted = tuple(c._replace(fit=posterior_at(unknowns.assembled(c.values))) for c in learnt.components)
    return fit_of(replace(learnt, components=fitted), unknowns)


@dataclass(frozen=True)
class Spectrum:
    """What the evidence needs of the data, in the basis of the left singular vectors.

    Parameters
    ----------
    energy : ndarray of shape (r,)
        Squared singular values of Z.
    ones, response : ndarray of shape (r,)
        a and c in that basis.
    rest : ndarray of shape (2, 2)
        Inner products of a and c outside it.
    count, weight : float
        Number of observations, and the sum of their weights.
    wide : float
        τ², zero without an intercept.
    constant : float
        What the log evidence has beside that of Gaussian observations: −Σ weight log y for log-normal ones.
    """

    energy: Array
    ones: Array
    response: Array
    rest: Array
    count: int
    weight: float
    wide: float
    constant: float = 0.0

    def log_evidence(self, log_scale: float, log_noise: float) -> tuple[float, Array]:
        """log Z and its derivatives in log s and log σ."""
        s2, v = np.exp(2.0 * log_scale), np.exp(2.0 * log_noise)
        m = s2 * self.energy + v
        # of a and c: inner products under M⁻¹, and minus their derivatives in log s and log σ
        inner = self._inner(1.0 / m) + self.rest / v
        by_scale = 2.0 * s2 * self._inner(self.energy / m**2)
        by_noise = 2.0 * v * (self._inner(1.0 / m**2) + self.rest / v**2)
        outside = self.count - len(m)
        log_det = np.log(m).sum() + outside * np.log(v)
        d_det = np.array([2.0 * s2 * np.sum(self.energy / m), 2.0 * v * np.sum(1.0 / m) + 2.0 * outside])
        grown = 1.0 + self.wide * inner[0, 0]
        pull = self.wide * inner[0, 1] / grown
        # log det(M + τ²aaᵀ) = log det M + log(1 + τ²aᵀM⁻¹a); the quadratic form loses τ²(aᵀM⁻¹c)²/(1 + τ²aᵀM⁻¹a)
        square = inner[1, 1] - pull * inner[0, 1]
        slopes = np.stack([by_scale, by_noise])
        d_square = -(slopes[:, 1, 1] - 2.0 * pull * slopes[:, 0, 1] + pull**2 * slopes[:, 0, 0])
        d_grown = -self.wide * slopes[:, 0, 0] / grown
        # weights are exponents: ∏ N(y | x, σ²)^{w} has σ^{−Σw}, not σ^{−n}
        extra = self.weight - self.count
        value = -0.5 * (self.weight * np.log(2.0 * np.pi) + log_det + np.log(grown) + square) - extra * log_noise
        gradient = -0.5 * (d_det + d_grown + d_square) - np.array([0.0, extra])
        return float(value) + self.constant, gradient

    def _inner(self, weight: Array) -> Array:
        a, c = self.ones, self.response
        across = np.sum(weight * a * c)
        return np.array([[np.sum(weight * a * a), across], [across, np.sum(weight * c * c)]])


def spectrum(problem: LinearProblem, relative: Any = 1.0) -> Spectrum:
    """Decompose the rows of a problem once; prior scales are s times the `relative` ones."""
    if isinstance(problem.observed, HeldRows):
        return _spectrum_of_rows(problem, problem.observed, relative)
    return _spectrum_of_sums(problem, sum_squares(problem), relative)


def _spectrum_of_rows(problem: LinearProblem, observed: HeldRows, relative: Any) -> Spectrum:
    design, targets = problem.design, observed.targets
    rows = observed.rows[:, : design.n_features]
    dense = rows.toarray() if sparse.issparse(rows) else rows
    weight = np.ones(len(dense)) if targets.weight is None else targets.weight
    root = np.sqrt(weight)
    centre, width = problem.intercept if design.intercept else (0.0, 0.0)
    u, singular, _ = svd(root[:, None] * dense * (relative / design.spread), full_matrices=False)
    pair = np.stack([root, root * (_located(problem, targets) - centre)])
    inside = pair @ u
    outside = pair - inside @ u.T
    total, rest = float(weight.sum()), outside @ outside.T
    constant = -float(weight @ np.log(targets.response)) if problem.family.link == "log" else 0.0
    return Spectrum(singular**2, inside[0], inside[1], rest, len(dense), total, width**2, constant)


def _located(problem: LinearProblem, targets: Targets) -> Array:
    """Where the Gaussian noise puts the linear predictors: y, or its logarithm, less the offset."""
    y, offset = targets.response, targets.offset
    centre = np.log(y) if problem.family.link == "log" else y
    return centre if offset is None else centre - offset


class SquareSums(NamedTuple):
    """HᵀWH (both triangles), HᵀWt, tᵀWt with t = y − offset − Hμ, and the number of rows.

    They say all that the posterior and the evidence need, for every prior scale and noise scale (Challis (2013),
    §2.2.1). Sums of squares have half the digits of the rows: noise below 1e-7 of the response is not seen.
    """

    gram: Array
    response: Array
    square: float
    n_rows: int


def sum_squares(problem: LinearProblem) -> SquareSums:
    """The sums of a problem with Gaussian noise over blocks of rows: one pass."""
    model = problem.model(dict.fromkeys(("prior_scale", "scale"), 1.0))
    assert isinstance(model, BlockModel)
    gram, response, square = model.total(_square_sums, gaussian_part(model.own).mean)
    return SquareSums(symmetrise(gram), response, float(square), problem.observed.n_rows)


def _square_sums(block: Block, reading: Reading, mean: Array) -> tuple[Any, ...]:
    dim = len(mean)
    plain = DiagonalWhitening(np.ones(dim))
    total: tuple[Any, ...] = (np.zeros((dim, dim), order="F"), np.zeros(dim), 0.0)
    for observed in read_pieces(block, reading):
        sites, projections = observed.sites, whitened_projections(observed.rows, plain)
        t = np.asarray(observed.potential.loc) - sites.offset - observed.times(mean)  # type: ignore[attr-defined]
        part = (
            projections.gram(sites.weight),
            projections.transposed_times(sites.weight * t),
            dot(sites.weight * t, t),
        )
        total = add(total, part)
    return total


def _spectrum_of_sums(problem: LinearProblem, data: SquareSums, relative: Any) -> Spectrum:
    """In the eigenvectors of ZᵀZ, Z = W^½X/spread."""
    design, weight = problem.design, problem.observed.weight
    d, scale = design.n_features, relative / design.spread
    values, vectors = np.linalg.eigh(data.gram[:d, :d] * np.outer(scale * np.ones(d), scale))
    # what rounding has left of zero is not kept
    kept = np.flatnonzero(values > 10.0 * d * np.finfo(float).eps * values[-1])[-data.n_rows :]
    ones = data.gram[:d, d] if design.intercept else np.zeros(d)
    inside = np.stack([ones * scale, data.response[:d] * scale]) @ vectors[:, kept] / np.sqrt(values[kept])
    across = data.response[d] if design.intercept else 0.0
    total = np.array([[weight if design.intercept else 0.0, across], [across, data.square]])
    rest = total - inside @ inside.T
    rest[np.diag_indices(2)] = np.maximum(np.diagonal(rest), np.finfo(float).eps * np.diagonal(total))
    wide = problem.intercept[1] ** 2 if design.intercept else 0.0
    return Spectrum(values[kept], inside[0], inside[1], rest, data.n_rows, weight, wide)


def closed_form(problem: LinearProblem) -> tuple[Callable[[Any], Spectrum], Callable[[Mapping[str, Any]], Posterior]]:
    """The spectrum for relative prior scales and the posterior at hyperparameters; blocks are read once."""
    observed = problem.observed
    if isinstance(observed, HeldRows):
        return partial(spectrum, problem), lambda values: Exact().run(problem.model(values))
    data = sum_squares(problem)
    return partial(_spectrum_of_sums, problem, data), partial(_conclude, problem, data)


def _conclude(problem: LinearProblem, data: SquareSums, values: Mapping[str, Any]) -> Posterior:
    """The posterior from the sums: Σψ, its slope L HᵀWt/σ² and its curvature L HᵀWH L/σ² at the prior mean."""
    started, model = time.perf_counter(), problem.model(values)
    form = sum_form(model)
    assert form is not None  # blocks have one
    variance, whitening = float(values["scale"]) ** 2, form.own.whitening
    # Σ weight log N(y | Hμ + offset, σ²)
    value = -0.5 * (problem.observed.weight * (LOG_2PI + np.log(variance)) + data.square / variance)
    curvature = whitening.apply(whitening.apply(data.gram).T) / variance
    sums = Sums(float(value), whitening.apply(data.response) / variance, curvature)
    return conclude(model, form, sums, started)
