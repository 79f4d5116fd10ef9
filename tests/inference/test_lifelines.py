"""Survival families against lifelines 0.30.3, whose numbers are written down here.

They are `params_` and `log_likelihood_` of `WeibullAFTFitter` and `LogLogisticAFTFitter` after

    fitter._scipy_fit_method = "BFGS"
    fitter.fit(frame, "t", "e", fit_options={"gtol": 1e-7}, initial_point=plain.params_.values)

with `plain` a fit with the usual options, which ends within 1e-3 of the optimum; the table is that of `table`, by the
linear congruential generator of Park and Miller (1988).
"""

from __future__ import annotations

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.diagnostics.calibration import concordance

#: coefficients of a, b and one; logarithm of the shape; log likelihood
FOUND = {
    potentials.Weibull: (
        [1.2139458038816018, -0.7702694169870374, 0.5689114328021178],
        0.4894632530755893,
        -63.26852479425965,
    ),
    potentials.LogLogistic: (
        [1.2362246651816058, -0.7791336451874427, 0.30527127894011197],
        0.7439947197851663,
        -63.88279021905703,
    ),
}


def table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows with a one, times, and whether the event was seen."""
    state, numbers = 1, []
    for _ in range(400):
        state = 16807 * state % 2147483647
        numbers.append(state / 2147483647)
    u = np.array(numbers).reshape(80, 5)
    x = u[:, :2] - 0.5
    time = np.exp(0.5 + x @ [1.0, -0.7]) * (-np.log(u[:, 2])) ** (1.0 / 1.5)
    end = 3.0 * u[:, 3] + 0.2
    return np.column_stack([x, np.ones(80)]), np.minimum(time, end), (time <= end).astype(float)


@pytest.mark.parametrize("family", FOUND)
def test_the_likelihood_and_its_mode_are_those_of_lifelines(family) -> None:
    coefficients, log_shape, log_likelihood = FOUND[family]
    rows, time, seen = table()
    sites = family(time, seen, shape=np.exp(log_shape))
    assert float(sites.log_density(rows @ coefficients).sum()) == pytest.approx(log_likelihood, abs=1e-9)
    model = LatentLinearModel([GaussianFactor(cov=1e10), SiteFactor(rows, sites)])
    mode = infer(model, "map").mean
    np.testing.assert_allclose(mode, coefficients, rtol=0.0, atol=1e-6)
    slope = float(np.sum(sites.parameter_derivative("shape", rows @ mode)))
    assert slope == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize(("digits", "found"), [(15, 0.6699944536882972), (1, 0.653910149750416)])
def test_concordance_is_that_of_lifelines_and_scikit_survival(digits: int, found: float) -> None:
    """`concordance_index(t, p, e)` of lifelines 0.30.3 and `concordance_index_censored(e, t, -p)[0]` of scikit-survival
    0.28.0, which has no accelerated failure times of its own; with one digit predictions are equal in many pairs.
    """
    rows, time, event = table()
    predicted = np.round(rows @ [1.2, -0.8, 0.5], digits)
    assert concordance(time, event == 1.0, predicted) == pytest.approx(found, abs=1e-12)
