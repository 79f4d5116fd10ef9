"""Monte Carlo beside it, for comparison: plain, and with importance weights.

Gutteridge (2021), eqs. 7.10, 7.11, and the error bar of (7.19) (corrected: the deviations squared), (7.20).
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latlin.numerics.arrays import Array
from latlin.numerics.linalg import cholesky
from latlin.numerics.options import check_callable, check_choice, check_number, check_whole, float_array
from latlin.numerics.rng import RandomState, generator
from latlin.quadrature.kernels import KERNELS
from latlin.quadrature.measures import Gaussian, GaussianMixture, Uniform
from latlin.quadrature.result import Evaluations, Integral, ResultMoments, Trace
from latlin.quadrature.sequential import Integrand, Scale, evaluate

Sampled = Gaussian | GaussianMixture | Uniform


def monte_carlo(f: Integrand, measure: Sampled, n: int, random_state: RandomState = None) -> Integral:
    """The mean of f over n draws from the measure, and its standard error.

    Examples
    --------
    >>> from latlin.quadrature import Gaussian, monte_carlo
    >>> result = monte_carlo(lambda x: x[:, 0] ** 2, Gaussian(0.0, 1.0), 10_000, random_state=0)
    >>> abs(result.mean - 1.0) < 4.0 * result.sd
    True
    """
    return importance_sampling(f, measure, measure, n, random_state)


def importance_sampling(
    f: Integrand, measure: Sampled, proposal: Sampled, n: int, random_state: RandomState = None
) -> Integral:
    """The mean of f·p/q over n draws from the proposal q, and its standard error."""
    check_callable("f", f)
    n = check_whole("n", n, 2)
    for name, value in (("measure", measure), ("proposal", proposal)):
        if not isinstance(value, Sampled):
            raise ValueError(f"{name} must be a Gaussian, GaussianMixture or Uniform, got {value!r:.80}")
    if proposal.dim != measure.dim:
        raise ValueError(f"proposal has {proposal.dim} coordinates, the measure {measure.dim}")
    started = time.perf_counter()
    x = proposal.sample(n, generator(random_state))
    known = evaluate(f, x, Evaluations(np.empty((0, measure.dim)), np.empty(0)), Scale(logarithmic=False))
    terms = known.values
    if proposal is not measure:
        terms = terms * np.exp(measure.logpdf(x) - proposal.logpdf(x))
    mean = float(terms.mean())
    sd = float(terms.std(ddof=1) / np.sqrt(n))
    trace = Trace(np.array([n]), np.array([mean]), np.array([sd]), np.array([time.perf_counter() - started]))
    message = f"{n} draws: {mean:.6g} ± {sd:.2g}"
    belief = ResultMoments.single(mean, sd**2, float(n - 1))
    return Integral(mean, sd, belief.dof, known, trace, None, False, message, 0.0, belief)


# --- Which rows of a large data set to look at: random ones, or those a Gaussian process knows least about.
#
# Gutteridge (2021), §7.3.4 proposes the second, x* = argmax Var f(x) over the data ("exploration only"). Chosen
# so the rows are spread out, not typical, and their plain average is biased; but the measure here is the data
# themselves, so the kernel mean is an average over the rows and Bayesian quadrature gives the weights that undo it.


NUGGET = 1e-6


class Subsample(NamedTuple):
    """Rows, and weights (of sum one) with which their values estimate a mean over all rows."""

    indices: NDArray[np.intp]
    weights: Array


def subsample(
    data: ArrayLike,
    k: int,
    how: str = "active",
    *,
    length_scale: float | None = None,
    random_state: RandomState = None,
) -> Subsample:
    """k rows of the data, with weights.

    Parameters
    ----------
    data : array of shape (n, d)
    k : int
    how : {"active", "random"}
        "active" takes the row of largest posterior variance again and again (squared-exponential kernel on the
        standardised columns), "random" draws without replacement and weighs equally.
    length_scale : float, optional
        In standard deviations of the columns; √d by default.
    random_state : int, Generator or None

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(0.0, 1.0, 101)[:, None]
    >>> chosen = subsample(x, 5)
    >>> round(float(chosen.weights @ x[chosen.indices, 0] ** 2), 2)  # the mean over all rows is 0.335
    0.34
    """
    x = float_array("data", data)
    if x.ndim != 2 or not np.all(np.isfinite(x)):
        raise ValueError(f"data must be a finite matrix (n, d), got shape {x.shape}")
    if not 1 <= check_whole("k", k) <= len(x):
        raise ValueError(f"k must be between 1 and the number of rows {len(x)}, got {k}")
    if check_choice("how", how, ("active", "random")) == "random":
        return Subsample(generator(random_state).choice(len(x), k, replace=False), np.full(k, 1.0 / k))
    spread = x.std(axis=0)
    z = (x - x.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    d = z.shape[1]
    lengths = np.full(d, np.sqrt(d) if length_scale is None else check_number("length_scale", length_scale, above=0.0))
    indices = _most_uncertain(z, k, lengths)
    return Subsample(indices, quadrature_weights(z, indices, lengths))


def quadrature_weights(z: Array, indices: NDArray[np.intp], lengths: Array) -> Array:
    """Weights w, Σw = 1, that make Σ w_i f(z_i) the posterior mean of the average of f over all rows of z."""
    kernel = KERNELS["rbf"]
    mean = kernel.gram(z[indices], z, lengths).mean(axis=1)
    r = kernel.gram(z[indices], z[indices], lengths)
    r[np.diag_indices(len(r))] += NUGGET
    chol = cholesky(r, name="the kernel matrix of the subsample", max_jitter=1e-6)
    # constant mean: w = R⁻¹(z + 1 (1 − 1ᵀR⁻¹z) / 1ᵀR⁻¹1)
    ones = chol.solve(np.ones(len(r)))
    w = chol.solve(mean)
    return w + ones * (1.0 - w.sum()) / ones.sum()


def _most_uncertain(z: Array, k: int, lengths: Array) -> NDArray[np.intp]:
    """Greedy choice by posterior variance: a pivoted Cholesky factorisation of k rows, O(n k²)."""
    kernel = KERNELS["rbf"]
    variance = np.ones(len(z))
    rows = np.zeros((k, len(z)))
    chosen = np.zeros(k, dtype=np.intp)
    for step in range(k):
        # all variances are one at first: begin in the middle
        chosen[step] = np.argmin(np.sum(z**2, axis=1)) if step == 0 else np.argmax(variance)
        pick = chosen[step]
        column = kernel.gram(z[pick : pick + 1], z, lengths)[0] - rows[:step, pick] @ rows[:step]
        rows[step] = column / np.sqrt(max(variance[pick], 0.0) + NUGGET)
        variance = variance - rows[step] ** 2
        variance[chosen[: step + 1]] = -np.inf
    return chosen
