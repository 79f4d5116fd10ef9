"""Evidence gradients against finite differences, for every engine and likelihood that go together."""

import numpy as np
import pytest

from gp_problems import KERNEL, inputs, targets
from latlin import potentials
from latlin.engines import ExpectationPropagation, GaussianKL, Laplace, LocalBound
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor

TIGHT = {
    "laplace": Laplace(tol=1e-10),
    "lvb": LocalBound(tol=1e-9, max_iter=2000),
    "ep": ExpectationPropagation(schedule="parallel", tol=1e-11, sweeps=500),
    "gkl": GaussianKL(tol=1e-9),
}
SKIP = {("laplace", "laplace"), ("poisson", "lvb"), ("ordinal", "lvb")}
PAIRS = [
    (likelihood, engine)
    for likelihood in ("gaussian", "student-t", "laplace", "cauchy", "poisson", "ordinal")
    for engine in TIGHT
    if (likelihood, engine) not in SKIP
]


def slopes(gp, theta, h=1e-4):
    """Five-point differences of the evidence."""
    found = []
    for i in range(len(theta)):
        e = h * np.eye(len(theta))[i]
        at = [gp.log_marginal_likelihood(theta + k * e) for k in (-2, -1, 1, 2)]
        found.append((at[0] - 8.0 * at[1] + 8.0 * at[2] - at[3]) / (12.0 * h))
    return np.array(found)


@pytest.mark.parametrize(("likelihood", "engine"), PAIRS)
def test_regression(likelihood, engine):
    X = inputs(18)
    gp = GaussianProcessRegressor(KERNEL, likelihood=likelihood, engine=TIGHT[engine], optimizer=None)
    gp.fit(X, targets(likelihood, X))
    _, gradient = gp.log_marginal_likelihood(eval_gradient=True)
    assert len(gradient) == len(gp.theta_) > 2
    np.testing.assert_allclose(gradient, slopes(gp, gp.theta_), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("link", ["logit", "probit", "step"])
@pytest.mark.parametrize("engine", ["laplace", "lvb", "ep", "gkl"])
def test_classification(link, engine):
    if (link == "step" and engine in {"laplace", "lvb"}) or (link == "probit" and engine == "lvb"):
        pytest.skip("no derivative, or no quadratic bound")
    X = inputs(18)
    used = potentials.Step(1.0, 0.1) if link == "step" else link
    gp = GaussianProcessClassifier(KERNEL, link=used, engine=TIGHT[engine], optimizer=None)
    gp.fit(X, targets("labels", X))
    _, gradient = gp.log_marginal_likelihood(eval_gradient=True)
    np.testing.assert_allclose(gradient, slopes(gp, KERNEL.theta), rtol=1e-5, atol=1e-5)
