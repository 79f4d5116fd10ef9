"""Maximised under flat priors, additive models are those of lme4: restricted maximum likelihood.

Data and answers of `lmer(..., REML=TRUE)` are those of the tests of statsmodels (statsmodels/regression/tests/results).
Coefficients with flat priors are integrated over, which is what restricted likelihoods do. Penalised regressions of
mgcv are models with an intrinsic prior; its answers at its own smoothing parameters, which generalised cross-validation
chose, are those of statsmodels/gam/tests/results.
"""

from pathlib import Path

import numpy as np
import pytest
from scipy.interpolate import BSpline

from latlin import Constraint, ConvergenceWarning, GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
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


def test_a_variance_that_is_zero_is_taken_there_and_said():
    """Groups that are more alike than chance: restricted maximum likelihood has no variance between them."""
    rng = np.random.default_rng(3)
    g, x = np.repeat(np.arange(12), 5), rng.normal(size=60)
    y = x + rng.normal(size=60)
    y -= 0.9 * np.array([y[g == k].mean() for k in range(12)])[g]
    priors = dict.fromkeys(["Intercept", "x", "sd(g)", "sigma"], Flat())
    with pytest.warns(ConvergenceWarning, match=r"sd\(g\) runs to the lower end"):
        found = AdditiveModel("y ~ x + (1 | g)", hyperparameters="maximise", priors=priors).fit(
            {"y": y, "x": x, "g": g}
        )
    X = np.column_stack([np.ones(60), x])
    b, rest = np.linalg.lstsq(X, y)[:2]
    np.testing.assert_allclose(found.effects().column("mean"), b, atol=1e-6)
    assert found.hyperparameters_["sd(g)"]["mean"] < 1e-3
    assert found.hyperparameters_["sigma"]["mean"] ** 2 == pytest.approx(float(rest[0]) / 58, rel=1e-5)


#: of the two splines: knots, smoothing parameters (normal, Poisson), and the scale of the penalty
WEIGHT = [1953.22222222, 2118.77777778, 2275, 2383.88888889, 2515.55555556, 2757.33333333, 3016.44444444, 3208.11111111]
SPLINES = {
    "weight": (np.r_[[1488.0] * 4, WEIGHT, [4066.0] * 4], (0.830689464223685, 40491.3940640059), 2.44395544177397e-06),
    "hp": (
        np.r_[[48.0] * 4, 68, 73, 88, 101, 116, 152.28571428571428, [288.0] * 4],
        (425.361212061649, 232455.530262537),
        0.007945455,
    ),
}


def penalised(frame, which, noise):
    """Columns, precision, and the sums of the splines over the rows, which are zero."""
    fixed = np.column_stack([np.ones(len(frame)), frame["gas"], frame["fwd"], frame["rwd"]])
    blocks, penalties = [fixed], [np.zeros((4, 4))]
    for name, (knots, smoothing, scale) in SPLINES.items():
        basis = BSpline(knots, np.eye(len(knots) - 4), 3)
        # second derivatives are linear between knots: two nodes of Gauss and Legendre integrate their squares
        ends = np.unique(knots)
        middle, half = 0.5 * (ends[1:] + ends[:-1]), 0.5 * np.diff(ends)
        nodes = np.concatenate([middle - half / np.sqrt(3.0), middle + half / np.sqrt(3.0)])
        bent = basis.derivative(2)(nodes) * np.sqrt(np.tile(half, 2))[:, None]
        blocks.append(basis(frame[name]))
        penalties.append(smoothing[which] / scale / noise * bent.T @ bent)
    H, Q, at = np.column_stack(blocks), np.zeros((26, 26)), 0
    for penalty in penalties:
        Q[at : at + len(penalty), at : at + len(penalty)] = penalty
        at += len(penalty)
    sums = np.zeros((2, 26))
    sums[0, 4:16], sums[1, 16:] = blocks[1].sum(axis=0), blocks[2].sum(axis=0)
    return H, Q, sums


#: family, variance of the noise, coefficients and the variances of the last three
MGCV = [
    (
        "normal",
        4.70648213227865,
        [29.62727746, -6.21365499, 1.43986598, 1.01128095],
        [1.22625774, 0.53430888, 0.64439513, 0.68417911],
    ),
    (
        "poisson",
        1.0,
        [3.38155197, -0.2398058, 0.03855747, 0.03087891],
        [0.00909878, 0.00322562, 0.0056599, 0.00612031],
    ),
]


@pytest.mark.parametrize(("family", "noise", "coefficients", "variances"), MGCV)
def test_penalised_splines_of_mgcv(family, noise, coefficients, variances):
    frame = np.genfromtxt(DATA / "cars.csv", delimiter=",", names=True)
    H, Q, sums = penalised(frame, int(family == "poisson"), noise)
    y = frame["city_mpg"]
    potential = potentials.Gaussian(y, np.sqrt(noise)) if family == "normal" else potentials.Poisson(y)
    prior = GaussianFactor(precision=Q, rank=18)
    model = LatentLinearModel([prior, SiteFactor(H, potential)], constraints=[Constraint(sums)])
    posterior = infer(model, "exact" if family == "normal" else "laplace")
    np.testing.assert_allclose(H @ posterior.mean, frame[family], atol=1e-4)
    np.testing.assert_allclose(posterior.mean[:4], coefficients, atol=1e-4)
    # its Bayesian covariance
    np.testing.assert_allclose(posterior.variance[:4], variances, rtol=1e-4)


def test_reaction_times_of_the_gallery_have_the_published_fit_of_lme4():
    source = (Path(__file__).parents[2] / "examples" / "plot_sleep.py").read_text()
    table = np.array([row.split() for row in source.split('"""')[3].strip().splitlines()], dtype=float)
    frame = {"y": table[:, 1:].ravel(), "days": np.tile(np.arange(10.0), 18), "subject": table[:, 0].repeat(10)}
    names = ["Intercept", "days", "sd(subject)", "sd(subject:days)", "cor(subject)", "sigma"]
    priors = dict.fromkeys(names, Flat())
    found = AdditiveModel("y ~ days + (1 + days | subject)", hyperparameters="maximise", priors=priors).fit(frame)
    for name, (mean, sd) in {"Intercept": (251.405, 6.825), "days": (10.467, 1.546)}.items():
        assert found.effects()[name]["mean"] == pytest.approx(mean, abs=1e-3)
        assert found.effects()[name]["sd"] == pytest.approx(sd, abs=1e-3)
    learnt = {"sd(subject)": 24.741, "sd(subject:days)": 5.922, "cor(subject)": 0.066, "sigma": 25.592}
    for name, value in learnt.items():
        assert found.hyperparameters_[name]["mean"] == pytest.approx(value, abs=1e-3)
    levels = found.effects("subject")
    assert levels["subject[308.0]"]["mean"] == pytest.approx(2.2585, abs=1e-3)
    assert levels["subject:days[308.0]"]["mean"] == pytest.approx(9.1990, abs=1e-3)
