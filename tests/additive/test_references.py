"""Maximised under flat priors, additive models are those of lme4: restricted maximum likelihood.

Data and answers of `lmer(..., REML=TRUE)` are those of the tests of statsmodels (statsmodels/regression/tests/results).
Coefficients with flat priors are integrated over, which is what restricted likelihoods do.
"""

from pathlib import Path

import numpy as np
import pytest

from latlin.additive import AdditiveModel
from latlin.priors import Flat

DATA = Path(__file__).parent / "data"


def fitted(file, formula):
    frame = np.genfromtxt(DATA / file, delimiter=",", names=True)
    first = AdditiveModel(formula, hyperparameters="fixed").fit(frame)
    names = [*first.effects().names, *first.hyperparameters_.names]
    return AdditiveModel(formula, hyperparameters="maximise", priors=dict.fromkeys(names, Flat())).fit(frame)


CASES = [
    (
        ("intercepts.csv", "y ~ 0 + x0 + (1 | group)"),
        {"x0": (-0.9887533, 0.001323559)},
        {"sd(group)": 0.2524129, "sigma": 0.2733467},
        {"group[0.0]": (0.04964696, 0.1312315)},
    ),
    (
        ("slopes.csv", "y ~ 0 + x0 + x1 + (1 + z | group)"),
        {"x0": (-1.272483, 0.02228589), "x1": (0.861814, 0.0262125)},
        {"sd(group)": 0.5123204, "sd(group:z)": 3.341722, "sigma": 3.764058},
        {"group[0.0]": (0.03239688, 0.401762), "group:z[0.0]": (0.2230525, 1.203536)},
    ),
    (
        ("slopes.csv", "y ~ 0 + x0 + x1 + (1 + z || group)"),
        {"x0": (-1.276822, 0.02225705), "x1": (0.8640243, 0.02623682)},
        {"sd(group)": 0.5107725, "sd(group:z)": 3.31152, "sigma": 3.762967},
        {},
    ),
]


@pytest.mark.parametrize(("model", "coefficients", "variances", "groups"), CASES)
def test_restricted_maximum_likelihood_of_lme4(model, coefficients, variances, groups):
    found = fitted(*model)
    effects = found.effects()
    for name, (mean, variance) in coefficients.items():
        assert effects[name]["mean"] == pytest.approx(mean, abs=1e-5)
        assert effects[name]["sd"] ** 2 == pytest.approx(variance, rel=1e-4)
    for name, variance in variances.items():
        assert found.hyperparameters_[name]["mean"] ** 2 == pytest.approx(variance, abs=1e-4)
    levels = found.effects("group")
    for name, (mean, conditional) in groups.items():
        assert levels[name]["mean"] == pytest.approx(mean, abs=1e-5)
        # that of lme4 is given the coefficients, ours is not
        assert conditional - 1e-5 < levels[name]["sd"] ** 2 < 1.02 * conditional
    if "sd(group:z)" in variances and groups:
        covariance = found._parts[1].covariance(found._components[0].values)
        assert covariance[0, 1] == pytest.approx(0.08897376, abs=1e-4)
