"""Observations that a family cannot produce get one sentence, with the number of rows and the first of them."""

import re

import numpy as np
import pandas
import pytest
from typer.testing import CliRunner

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, linear
from latlin.additive import AdditiveModel
from latlin.cli.app import app
from latlin.gp import GaussianProcessRegressor
from latlin.potentials.families import AMOUNTS, COUNTS, FAMILIES, SUCCESSES, TIMES

N = 12
RNG = np.random.default_rng(0)
X, POSITIVE = RNG.standard_normal((N, 2)), RNG.gamma(2.0, 1.0, N)
BAD = [4, 7]


def spoilt(values, value):
    found = np.array(values, dtype=float)
    found[BAD] = value
    return found


#: family → (observations, what stands beside them, what is said)
COUNTED = (
    spoilt(RNG.poisson(3.0, N), -1.0),
    None,
    "y must hold (whole numbers 0, 1, 2, …|numbers of at least zero), got -1",
)
CASES = [(family, *COUNTED) for family in COUNTS]
CASES += [
    ("beta", spoilt(np.full(N, 0.3), share), None, f"y must hold numbers strictly between 0 and 1, got {share:g}")
    for share in (0.0, 1.0, 1.5)
]
CASES += [
    (family, spoilt(POSITIVE, 0.0), None, "y must hold positive numbers, got 0")
    for family in AMOUNTS
    if family != "tweedie"
]
CASES += [("tweedie", spoilt(POSITIVE, -1.0), None, "y must hold numbers of at least zero, got -1")]
CASES += [
    (family, spoilt(np.ones(N), 9.0), np.full(N, 5.0), "successes must hold numbers of at most trials, got 9")
    for family in SUCCESSES
]
CASES += [("binomial", np.zeros(N), spoilt(np.full(N, 5.0), 0.0), "trials must hold whole numbers from 1, got 0")]
CASES += [(family, spoilt(POSITIVE, 0.0), np.ones(N), "time must hold positive numbers, got 0") for family in TIMES]
CASES += [(family, POSITIVE, spoilt(np.ones(N), 7.0), "event must hold 1 .*, got 7") for family in TIMES]
# the end of an interval must be given, however early the interval begins
CASES += [
    ("weibull", 0.1 * POSITIVE / POSITIVE.max(), spoilt(np.ones(N), 3.0), "(upper|event) must hold .*, got (0|3)")
]
IDS = [f"{family}: {said}" for family, *_, said in CASES]


def second(family, beside):
    """The name of what stands beside the observations."""
    return "" if beside is None else "trials" if family in SUCCESSES else "event"


def by_estimator(family, y, beside):
    named = {
        **dict.fromkeys(COUNTS, linear.BayesianCountRegression),
        **dict.fromkeys(AMOUNTS, linear.BayesianGammaRegression),
        **dict.fromkeys(SUCCESSES, linear.BayesianBinomialRegression),
        **dict.fromkeys(TIMES, linear.BayesianSurvivalRegression),
    }
    model = named[family](family) if family in named else linear.BayesianBetaRegression()
    model.fit(X, y, **({second(family, beside): beside} if beside is not None else {}))


def by_process(family, y, beside):
    params = {second(family, beside): beside} if beside is not None else None
    GaussianProcessRegressor(likelihood=family, likelihood_params=params).fit(X, y)


def by_formula(family, y, beside):
    frame = pandas.DataFrame({"x": X[:, 0], "y": y, **({"z": beside} if beside is not None else {})})
    response = "y" if beside is None else f"y | {second(family, beside)}(z)"
    AdditiveModel(f"{response} ~ x", family).fit(frame)


@pytest.mark.parametrize(("family", "y", "beside", "said"), CASES, ids=IDS)
@pytest.mark.parametrize("fit", [by_estimator, by_process, by_formula])
def test_rows_are_counted_and_the_first_is_named(fit, family, y, beside, said):
    with pytest.raises(ValueError, match=f"^{said} in 2 rows, first in row 4$"):
        fit(family, y, beside)


@pytest.mark.parametrize(("family", "y", "beside", "said"), CASES, ids=IDS)
def test_sites_are_counted_and_the_first_is_named(family, y, beside, said):
    declared = FAMILIES[family]
    columns = dict(zip(declared.columns, [y, beside][: 1 + (beside is not None)], strict=False))
    prior = GaussianFactor(np.zeros(2), np.eye(2))
    with pytest.raises(ValueError, match=rf"^{said} at site 4 \(2 of {N} sites\)$"):
        infer(LatentLinearModel([prior, SiteFactor(X, declared.template.replace(**columns))]), "laplace")


@pytest.mark.parametrize("way", ["target", "formula"])
@pytest.mark.parametrize(("family", "y", "beside", "said"), CASES, ids=IDS)
def test_the_command_line_counts_rows_from_one(tmp_path, way, family, y, beside, said):
    frame = pandas.DataFrame({"x": X[:, 0], "y": y, **({"z": beside} if beside is not None else {})})
    frame.to_csv(tmp_path / "t.csv", index=False)
    goal = ["--target", "y"] if way == "target" else ["--formula", "y ~ x"]
    more = [f"--{second(family, beside)}", "z"] if beside is not None else []
    words = [
        "fit",
        str(tmp_path / "t.csv"),
        *goal,
        "--family",
        family,
        *more,
        "--out",
        str(tmp_path / "m.latlin"),
        "-q",
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    found = " ".join(result.stderr.split())
    assert re.search(f"{said} in 2 rows, first in row 5$", found), found
    assert "note:" not in found
