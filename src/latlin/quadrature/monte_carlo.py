"""Monte Carlo beside it, for comparison: plain, and with importance weights.

Gutteridge (2021), eqs. 7.10, 7.11, and the error bar of (7.19) (corrected: the deviations squared), (7.20).
"""

from __future__ import annotations

import time

import numpy as np

from latlin.numerics.options import function, whole
from latlin.numerics.rng import RandomState, generator
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
    function("f", f)
    n = whole("n", n, 2)
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
