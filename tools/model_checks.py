"""How often do the checks of a model speak? Of data from the model itself (false alarms), and of known misfits (power).

    python tools/model_checks.py [--runs 100] [--rows 100] [--folds 0] [--only Gaussian overdispersed]

Each run of a linear model draws four features, two of them with effects, which are drawn too, fits the default
estimator and asks for its verdict. With --folds 5 rows are held out as well, as the command line does, which adds
coverage or calibration and the baseline. One of a formula draws a column, 20 groups and a response, for
`y ~ x + (1 | g)`; with --folds its rows are left out one by one. One line per kind of data: the share of fits that
"do not fit", and the checks that failed.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit

from latlin import linear
from latlin.additive import AdditiveModel
from latlin.report import assess
from latlin.report.additive import describe_additive

Array = np.ndarray
#: responses, further arguments of fit, and the estimator
Draw = Callable[[np.random.Generator, Array, Array], tuple[Any, Array, dict[str, Any]]]
FEATURES = 4
#: rows of a table of a column x and levels g, the linear predictor, and what is drawn at it
Response = Callable[[np.random.Generator, Array, Array, Array], Array]
GROUPS, FORMULA = 20, "y ~ x + (1 | g)"


def gaussian(noise: Callable[[np.random.Generator, Array, Array], Array]) -> Draw:
    """Numbers with some noise about the line."""
    return lambda rng, X, x: (linear.BayesianLinearRegression(), x + noise(rng, X, x), {})


def counts(estimator: Callable[[], Any], spread: float) -> Draw:
    """Poisson counts whose rates vary by a gamma factor with this variance."""

    def draw(rng: np.random.Generator, X: Array, x: Array) -> tuple[Any, Array, dict[str, Any]]:
        factor = rng.gamma(1.0 / spread, spread, len(x)) if spread else 1.0
        return estimator(), rng.poisson(np.exp(0.5 * x + 0.5) * factor), {}

    return draw


def trials(concentration: float) -> Draw:
    """Successes of ten, binomial or with shares that vary."""

    def draw(rng: np.random.Generator, X: Array, x: Array) -> tuple[Any, Array, dict[str, Any]]:
        share = expit(x)
        if concentration < np.inf:
            share = rng.beta(concentration * share, concentration * (1.0 - share))
        y = rng.binomial(10, share)
        return linear.BayesianBinomialRegression(), y, {"trials": np.full(len(x), 10)}

    return draw


def outliers(rng: np.random.Generator, X: Array, x: Array) -> Array:
    """Five in a hundred rows are shifted by eight standard deviations."""
    noise = rng.standard_normal(len(x))
    noise[: max(2, len(x) // 20)] += 8.0
    return noise


KINDS: dict[str, Draw] = {
    # from the model
    "Gaussian": gaussian(lambda rng, X, x: rng.standard_normal(len(x))),
    "logistic": lambda rng, X, x: (linear.BayesianLogisticRegression(), rng.random(len(x)) < expit(x), {}),
    "Poisson": counts(linear.BayesianPoissonRegression, 0.0),
    "counts": counts(linear.BayesianCountRegression, 0.5),
    "binomial": trials(np.inf),
    "gamma": lambda rng, X, x: (linear.BayesianGammaRegression(), np.exp(0.5 * x) * rng.gamma(3.0, 1 / 3, len(x)), {}),
    "Student t": lambda rng, X, x: (linear.RobustRegression(), x + rng.standard_t(3, len(x)), {}),
    # known misfits
    "overdispersed": counts(linear.BayesianPoissonRegression, 0.5),
    "shares vary": trials(4.0),
    "outliers": gaussian(outliers),
    "missed square": gaussian(lambda rng, X, x: 0.6 * X[:, 0] ** 2 + rng.standard_normal(len(x))),
    "missed square, classes": lambda rng, X, x: (
        linear.BayesianLogisticRegression(),
        rng.random(len(x)) < expit(x + X[:, 0] ** 2 - 1.0),
        {},
    ),
    "uneven noise": gaussian(lambda rng, X, x: np.exp(0.7 * x) * rng.standard_normal(len(x))),
}


#: family and response of models of a formula
FORMULAS: dict[str, tuple[str, Response]] = {
    "formula, Gaussian": ("gaussian", lambda rng, x, g, eta: eta + rng.standard_normal(len(x))),
    "formula, Student t": ("student-t", lambda rng, x, g, eta: eta + rng.standard_t(3, len(x))),
    "formula, Poisson": ("poisson", lambda rng, x, g, eta: rng.poisson(np.exp(0.5 * eta + 0.5))),
    "formula, Bernoulli": ("bernoulli", lambda rng, x, g, eta: (rng.random(len(x)) < expit(eta)).astype(int)),
    "formula, gamma": ("gamma", lambda rng, x, g, eta: np.exp(0.5 * eta) * rng.gamma(3.0, 1 / 3, len(x))),
    # known misfits
    "formula, square": ("gaussian", lambda rng, x, g, eta: eta + 0.6 * x**2 + rng.standard_normal(len(x))),
    "formula, slopes": (
        "gaussian",
        lambda rng, x, g, eta: eta + rng.standard_normal(GROUPS)[g] * x + rng.standard_normal(len(x)),
    ),
    "formula, uneven": ("gaussian", lambda rng, x, g, eta: eta + np.exp(0.7 * x) * rng.standard_normal(len(x))),
    "formula, t of 2": ("gaussian", lambda rng, x, g, eta: eta + rng.standard_t(2, len(x))),
    "formula, skewed": ("gaussian", lambda rng, x, g, eta: np.exp(0.5 * (eta + rng.standard_normal(len(x))))),
    "formula, square of counts": ("poisson", lambda rng, x, g, eta: rng.poisson(np.exp(0.5 * eta + 0.3 * x**2))),
    "formula, slopes of counts": (
        "poisson",
        lambda rng, x, g, eta: rng.poisson(np.exp(0.5 * (eta + rng.standard_normal(GROUPS)[g] * x) + 0.5)),
    ),
}


def failed_of_formula(kind: str, seed: int, rows: int, folds: int) -> list[str]:
    """Names of the checks that failed for a model of a formula."""
    rng = np.random.default_rng([seed, rows])
    family, response = FORMULAS[kind]
    x, g = rng.standard_normal(rows), rng.integers(0, GROUPS, rows)
    frame = {"x": x, "g": g, "y": response(rng, x, g, 0.5 + x + rng.standard_normal(GROUPS)[g])}
    model = AdditiveModel(FORMULA, family).fit(frame)
    checks = describe_additive(model, frame, draws=200).checks if folds else model.checks_
    return [check.name for check in checks.failed]


def failed_checks(kind: str, seed: int, rows: int, folds: int) -> list[str]:
    """Names of the checks that failed for one data set."""
    if kind in FORMULAS:
        return failed_of_formula(kind, seed, rows, folds)
    rng = np.random.default_rng([seed, rows])
    X = rng.standard_normal((rows, FEATURES))
    weight = 0.7 * rng.standard_normal(FEATURES) * (np.arange(FEATURES) < FEATURES // 2)
    model, y, more = KINDS[kind](rng, X, X @ weight + 0.3)
    model.fit(X, y, **more)
    checks = model.checks_
    if folds and not more:
        checks = checks.including(assess(model, X, y, folds=folds).checks)
    return [check.name for check in checks.failed]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--folds", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[*KINDS, *FORMULAS], choices=[*KINDS, *FORMULAS])
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    for kind in asked.only:
        found = [failed_checks(kind, seed, asked.rows, asked.folds) for seed in range(asked.runs)]
        share = sum(map(bool, found)) / asked.runs
        which = dict(Counter(name for names in found for name in names))
        print(f"{kind:26s}{asked.rows:6d} rows   does not fit {share:6.1%}   {which}", flush=True)


if __name__ == "__main__":
    main()
