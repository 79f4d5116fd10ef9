"""How often do the checks of a model speak? Of data from the model itself (false alarms), and of known misfits (power).

    python tools/model_checks.py [--runs 100] [--rows 100] [--folds 0] [--only Gaussian overdispersed]

Each run draws four features, half of them with effects, fits the default estimator and asks for its verdict. With
--folds 5 rows are held out as well, as the command line does, which adds coverage or calibration and the baseline. One
line per kind of data: the share of fits that "do not fit", and the checks that failed.
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
from latlin.report import assess

Array = np.ndarray
#: responses, further arguments of fit, and the estimator
Draw = Callable[[np.random.Generator, Array, Array], tuple[Any, Array, dict[str, Any]]]
FEATURES = 4


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


def failed_checks(kind: str, seed: int, rows: int, folds: int) -> list[str]:
    """Names of the checks that failed for one data set."""
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
    parser.add_argument("--only", nargs="*", default=list(KINDS), choices=list(KINDS))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    for kind in asked.only:
        found = [failed_checks(kind, seed, asked.rows, asked.folds) for seed in range(asked.runs)]
        share = sum(map(bool, found)) / asked.runs
        which = dict(Counter(name for names in found for name in names))
        print(f"{kind:24s}{asked.rows:6d} rows   does not fit {share:6.1%}   {which}", flush=True)


if __name__ == "__main__":
    main()
