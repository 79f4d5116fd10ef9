"""Simulation-based calibration and proper scores: is the truth, drawn from the prior, an ordinary draw?

If θ ~ prior and y ~ p(y | θ), the rank of θ among draws of the exact posterior is uniform (Talts, Betancourt, Simpson,
Vehtari and Gelman, 2018). Ranks that pile up at both ends say that posteriors are too narrow, in the middle too wide,
on one side that they are shifted. The ranks also give the coverage of every central interval.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, chdtrc, ndtr

from latlin.numerics.arrays import Array
from latlin.numerics.options import check_callable, check_list, check_number, check_whole, float_array
from latlin.numerics.progress import Progress, progress
from latlin.numerics.rng import RandomState, generator

# --- Proper scores: what a forecaster minimises only by saying what it believes. Smaller is better, one per case.


def log_score(y: ArrayLike, probability: ArrayLike) -> Array:
    """−log of the probability of the class that happened.

    Parameters
    ----------
    y : array of shape (n,)
        Classes 0 … K−1; for two classes given by one probability, 0 or 1.
    probability : array of shape (n, K), or (n,) for the probability of class 1

    Examples
    --------
    >>> log_score([1, 0], [0.5, 0.5]).round(4).tolist()
    [0.6931, 0.6931]
    """
    index, p = _classes(y, probability)
    with np.errstate(divide="ignore"):
        return -np.log(np.take_along_axis(p, index[:, None], axis=1)[:, 0])


def brier_score(y: ArrayLike, probability: ArrayLike) -> Array:
    """Σ_k (p_k − [y = k])²; for two classes twice the squared error of the probability of class 1.

    Examples
    --------
    >>> brier_score([1, 0], [1.0, 0.5]).tolist()
    [0.0, 0.5]
    """
    index, p = _classes(y, probability)
    happened = np.eye(p.shape[1])[index]
    return np.sum((p - happened) ** 2, axis=1)


def crps_normal(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> Array:
    """Continuous ranked probability score of a normal forecast, in the units of y.

    With z = (y − mean)/std: std·[z(2Φ(z) − 1) + 2φ(z) − 1/√π] (Gneiting and Raftery, 2007).

    Examples
    --------
    >>> float(crps_normal(0.0, 0.0, 1.0).round(4))
    0.2337
    """
    y, mean, std = stack_numbers(y=y, mean=mean, std=std)
    if np.any(std < 0.0):
        raise ValueError(f"std must not be negative, got {std.min():g}")
    some = np.where(std > 0.0, std, 1.0)
    z = (y - mean) / some
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    spread = some * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi))
    return np.where(std > 0.0, spread, np.abs(y - mean))


def crps_draws(y: ArrayLike, draws: ArrayLike) -> Array:
    """Continuous ranked probability score from draws of the forecast, ⟨|X − y|⟩ − ½⟨|X − X′|⟩, without bias.

    Parameters
    ----------
    y : array of shape (n,)
    draws : array of shape (m, n)
        At least two per case.
    """
    y, x = float_array("y", y), float_array("draws", draws)
    m = len(x) if x.ndim else 0
    if m < 2 or x.shape[1:] != y.shape:
        raise ValueError(f"draws must have shape (m, {y.size}), as y, with m of at least 2, got {x.shape}")
    x = np.sort(x, axis=0)
    # Σ_{i<j} (x_j − x_i) of sorted draws = Σ_i (2i − m + 1) x_i
    pairs = np.tensordot(2.0 * np.arange(m) - m + 1.0, x, axes=1)
    return np.abs(x - y).mean(axis=0) - pairs / (m * (m - 1))


def interval_score(y: ArrayLike, low: ArrayLike, high: ArrayLike, coverage: float) -> Array:
    """Width of a central interval plus 2/α for every unit by which y lies outside, α = 1 − coverage.

    Examples
    --------
    >>> interval_score([0.0, 2.0], -1.0, 1.0, coverage=0.9).round(6).tolist()
    [2.0, 22.0]
    """
    coverage = check_number("coverage", coverage, above=0.0, below=1.0)
    y, low, high = stack_numbers(y=y, low=low, high=high)
    if np.any(low > high):
        raise ValueError("low must not exceed high")
    outside = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return high - low + 2.0 / (1.0 - coverage) * outside


def stack_numbers(**values: ArrayLike) -> tuple[Array, ...]:
    """Arrays of numbers that can be taken entry by entry."""
    arrays = {name: float_array(name, value) for name, value in values.items()}
    try:
        np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"the shapes do not go together: {shapes}") from None
    return tuple(arrays.values())


def _classes(y: ArrayLike, probability: ArrayLike) -> tuple[NDArray[np.int64], Array]:
    p, seen = float_array("probability", probability), float_array("y", y)
    p = np.column_stack([1.0 - p, p]) if p.ndim == 1 else p
    index = np.where(np.isfinite(seen), seen, -1.0).astype(np.int64)
    if p.ndim != 2 or index.shape != p.shape[:1]:
        raise ValueError(f"y of shape {index.shape} and probability of shape {p.shape} do not go together")
    if not np.all((p >= 0.0) & (p <= 1.0)) or np.any(np.abs(p.sum(axis=1) - 1.0) > 1e-6):
        raise ValueError("probability must lie in [0, 1] and sum to one over classes")
    if np.any(index != seen) or np.any((index < 0) | (index >= p.shape[1])):
        raise ValueError(f"y must hold classes 0 … {p.shape[1] - 1}")
    return index, p


Simulate = Callable[[np.random.Generator], tuple[Any, Any]]
#: data, count, generator → draws
Fitter = Callable[[Any, int, np.random.Generator], Array]
LEVELS = (0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Calibration:
    """Ranks of the truth among draws of its posterior.

    Attributes
    ----------
    ranks : ndarray of int of shape (n_runs, n_parameters)
        How many of the draws lie below the truth, 0 … n_draws.
    n_draws : int
    names : tuple of str
    levels : tuple of float
        Of the coverage table.
    """

    ranks: NDArray[np.int64]
    n_draws: int
    names: tuple[str, ...]
    levels: tuple[float, ...] = LEVELS

    def p_values(self, bins: int = 10) -> Array:
        """Of a χ² test of uniform ranks, one per parameter."""
        edges = np.linspace(0, self.n_draws + 1, bins + 1)
        expected = np.diff(np.ceil(edges)) / (self.n_draws + 1) * len(self.ranks)
        counts = [np.histogram(column, np.ceil(edges) - 0.5)[0] for column in self.ranks.T]
        return chdtrc(bins - 1, np.sum((np.array(counts) - expected) ** 2 / expected, axis=1))

    def coverage(self, level: float) -> Array:
        """How often the central interval of this level held the truth, one number per parameter."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}")
        u = (self.ranks + 0.5) / (self.n_draws + 1)
        return np.mean(np.abs(u - 0.5) <= 0.5 * level, axis=0)

    def __str__(self) -> str:
        """A table: parameter, coverage by level, χ² p."""
        head = ["parameter", *(f"{level:.0%}" for level in self.levels), "χ² p"]
        body = np.column_stack([*(self.coverage(level) for level in self.levels), self.p_values()])
        lines = [[name, *(f"{value:.3f}" for value in row)] for name, row in zip(self.names, body, strict=True)]
        widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
        table = ["  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in [head, *lines]]
        return "\n".join([*table, f"{len(self.ranks)} runs, {self.n_draws} draws each"])


def calibrate(
    estimator: Any,
    simulate: Simulate,
    *,
    n_runs: int = 200,
    n_draws: int = 199,
    levels: Sequence[float] = LEVELS,
    names: Sequence[str] | None = None,
    random_state: RandomState = None,
    verbose: bool = False,
) -> Calibration:
    """Fit many simulated data sets whose truth is known, and rank the truth among posterior draws.

    Parameters
    ----------
    estimator : estimator or callable
        Something with `fit(*data)` and then `sample_posterior(n, random_state)` or `posterior_`; or a function from the
        data to a posterior with `sample(n, random_state)`. Its prior must be the one that `simulate` draws from, with
        hyperparameters that are fixed, not learnt.
    simulate : callable
        Generator → (truth, data): a vector of parameters drawn from the prior, and the data drawn given them (a tuple
        (X, y) for an estimator).
    n_runs, n_draws : int
        Data sets, and posterior draws of each. With n_draws + 1 a multiple of 20 all default levels fit the ranks.
    levels : sequence of float
        For the printed table.
    names : sequence of str, optional
        Of the parameters.
    random_state : int, Generator or RandomState, optional
    verbose : bool
        Show a progress bar.

    Returns
    -------
    Calibration

    Examples
    --------
    >>> from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
    >>> def simulate(rng):
    ...     w = rng.normal(size=1)
    ...     sites = SiteFactor([[1.0]], potentials.Gaussian(w + rng.normal(size=1)))
    ...     return w, LatentLinearModel([GaussianFactor(dim=1), sites])
    >>> found = calibrate(lambda model: infer(model, "gkl"), simulate, n_runs=40, n_draws=19, random_state=0)
    >>> found.ranks.shape, bool(found.p_values(bins=5)[0] > 0.01)
    ((40, 1), True)
    """
    n_runs, n_draws = check_whole("n_runs", n_runs, 1), check_whole("n_draws", n_draws, 1)
    shown = tuple(
        check_number("levels", level, above=0.0, below=1.0) for level in check_list("levels", levels, "numbers")
    )
    check_callable("simulate", simulate)
    names = None if names is None else check_list("names", names, "names")
    fit, rng = _fitter(estimator), generator(random_state)
    with progress("calibrate", n_runs, verbose) as bar:
        ranks = np.stack([_run(simulate, fit, n_draws, rng, bar) for _ in range(n_runs)])
    return Calibration(ranks, n_draws, _labels(names, ranks.shape[1]), shown)


def _run(simulate: Simulate, fit: Fitter, n_draws: int, rng: np.random.Generator, bar: Progress) -> NDArray[np.int64]:
    """The ranks of one truth."""
    truth, data = simulate(rng)
    ranks = _rank(np.ravel(truth), fit(data, n_draws, rng), rng)
    bar.advance("")
    return ranks


def _labels(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    labels = tuple(names) if names is not None else tuple(f"θ{i}" for i in range(count))
    if len(labels) != count:
        raise ValueError(f"names must be {count}, as many as parameters, got {len(labels)}")
    return labels


def _fitter(estimator: Any) -> Fitter:
    if hasattr(estimator, "fit"):
        own = copy.deepcopy(estimator)

        def fit(data: Any, count: int, rng: np.random.Generator) -> Array:
            own.fit(*data)
            if hasattr(own, "sample_posterior"):
                return np.asarray(own.sample_posterior(count, random_state=rng))
            return np.asarray(own.posterior_.sample(count, rng))

        return fit
    if not callable(estimator):
        raise ValueError(f"estimator must have fit() or be a function of the data, got {type(estimator).__name__}")
    return lambda data, count, rng: np.asarray(estimator(data).sample(count, rng))


def _rank(truth: Array, draws: Array, rng: np.random.Generator) -> NDArray[np.int64]:
    flat = draws.reshape(len(draws), -1)
    if flat.shape[1] != len(truth):
        raise ValueError(f"simulate gives {len(truth)} parameters, but the posterior draws {flat.shape[1]}")
    ties = np.sum(flat == truth, axis=0)
    return np.sum(flat < truth, axis=0) + rng.integers(0, ties + 1)


# --- Do events that were given probability p happen with frequency p? The reliability curve, with its uncertainty.


class ReliabilityCurve(NamedTuple):
    """Groups of about equal size, in rising order of what was predicted; every field one number per group."""

    predicted: Array
    observed: Array
    low: Array
    high: Array
    size: NDArray[np.int64]


def reliability_curve(happened: ArrayLike, probability: ArrayLike, *, bins: int = 10) -> ReliabilityCurve:
    """Mean predicted probability against observed frequency.

    Parameters
    ----------
    happened : array of shape (n,)
        0 or 1 (or bool).
    probability : array of shape (n,)
        What was predicted, in [0, 1].
    bins : int
        Groups at most. Equal probabilities are never put into different groups.

    Returns
    -------
    ReliabilityCurve
        `low` and `high` are the 90 % interval of the frequency under Jeffreys' prior, Beta(½, ½).

    Examples
    --------
    >>> curve = reliability_curve([0, 0, 1, 1], [0.1, 0.1, 0.9, 0.9], bins=2)
    >>> curve.predicted.tolist(), curve.observed.tolist()
    ([0.1, 0.9], [0.0, 1.0])
    """
    y, p = float_array("happened", happened), float_array("probability", probability)
    bins = check_whole("bins", bins, 1)
    if y.shape != p.shape or y.ndim != 1 or not y.size:
        raise ValueError(f"happened and probability must be vectors of one length, got shapes {y.shape} and {p.shape}")
    if not (np.all(np.isin(y, (0.0, 1.0))) and np.all((p >= 0.0) & (p <= 1.0))):
        raise ValueError("happened must hold 0 and 1, probability numbers in [0, 1]")
    edges = np.unique(np.quantile(p, np.linspace(0.0, 1.0, bins + 1)[1:-1]))
    group = np.searchsorted(edges, p, side="left")
    count = np.bincount(group)
    used = count > 0
    hits, total, count = (np.bincount(group, y)[used], np.bincount(group, p)[used], count[used])
    # Beta(k + ½, n − k + ½), with the ends closed where no other outcome was seen
    low = np.where(hits > 0, betaincinv(hits + 0.5, count - hits + 0.5, 0.05), 0.0)
    high = np.where(hits < count, betaincinv(hits + 0.5, count - hits + 0.5, 0.95), 1.0)
    return ReliabilityCurve(total / count, hits / count, low, high, count)


def concordance(
    time: Array, event: ArrayLike, predicted: Array, weight: Array | None = None, upper: Array | None = None
) -> float:
    """Harrell's concordance of predictions that should grow with time.

    Events are coded 1 or True (seen), 0 or False (later), 2 (earlier) and 3 (between time and `upper`). A pair counts
    where one event was certainly before the other.

    >>> concordance(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]), np.array([0.1, 0.3, 0.2]))
    1.0
    """
    weight = np.ones(len(time)) if weight is None else weight
    code = np.broadcast_to(np.asarray(event, float), time.shape)
    ends = np.full(time.shape, np.inf) if upper is None else upper
    low, high = np.where(code == 2.0, 0.0, time), np.select([code == 0.0, code == 3.0], [np.inf, ends], time)
    agreed = total = 0.0
    for first in np.flatnonzero(np.isfinite(high)):
        # those that outlive this event; of equal times those that were not seen then
        later = (low > high[first]) | ((low == high[first]) & (code != 1.0))
        shares = weight[first] * weight[later]
        total += float(shares.sum())
        agreed += float(shares @ (0.5 + 0.5 * np.sign(predicted[later] - predicted[first])))
    if total == 0.0:
        raise ValueError("concordance needs a pair of rows whose order is known: an event before another time")
    return agreed / total
