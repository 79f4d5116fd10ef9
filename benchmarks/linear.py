"""The estimators against scikit-learn's counterparts: held-out densities, coverage of intervals, cost over the engine.

* Mean log predictive density of held-out rows (five folds), in nat, against the counterpart with cross-validated
  regularisation: `LogisticRegressionCV`, `RidgeCV` with the noise of its cross-validated residuals, `PoissonRegressor`
  in a grid search. The difference has a paired standard error.
* The share of held-out observations inside 90 % predictive intervals, and Pearson's dispersion of the counts.
* Seconds of `BayesianLogisticRegression(engine="gkl")` with a given and with a learnt prior scale on 16,000 × 123
  rows, over those of the bare engine on the very same model.

Sets that do not come with scikit-learn are read from the folder `shared/data` beside the repository.

    python benchmarks/linear.py [--parts density cost] [--repeats 3]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.stats import norm, poisson
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LogisticRegressionCV, PoissonRegressor, RidgeCV
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from _suite import run_alone
from _table import environment, table
from _task import DATA, Task, Trial
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.linear import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianPoissonRegression,
    RobustRegression,
)

Array = np.ndarray
#: first estimator and counterpart of every set, for tables
OURS = {
    "breast cancer": "BayesianLogisticRegression",
    "diabetes": "BayesianLinearRegression",
    "a9a, 2500 rows, sparse": "BayesianLogisticRegression",
    "Boston": "BayesianLinearRegression",
    "doctor visits, 2000 rows": "BayesianPoissonRegression",
}
PEERS = {
    "breast cancer": "LogisticRegressionCV",
    "diabetes": "RidgeCV with residuals",
    "a9a, 2500 rows, sparse": "LogisticRegressionCV",
    "Boston": "RidgeCV with residuals",
    "doctor visits, 2000 rows": "PoissonRegressor, grid search",
}


def logistic_peer(X: Any, y: Array, new: Any, held: Array) -> Array:
    """Log probabilities of held-out labels."""
    scale = StandardScaler(with_mean=not sparse.issparse(X))
    peer = make_pipeline(
        scale,
        LogisticRegressionCV(
            Cs=10, scoring="neg_log_loss", max_iter=5000, l1_ratios=(0.0,), use_legacy_attributes=False
        ),
    )
    return peer.fit(X, y).predict_log_proba(new)[np.arange(len(held)), np.searchsorted(np.unique(y), held)]


def ridge_peer(X: Any, y: Array, new: Any, held: Array) -> Array:
    """Log densities with the standard deviation of cross-validated residuals."""
    peer = make_pipeline(StandardScaler(), RidgeCV(alphas=np.logspace(-3, 4, 50)))
    sd = np.std(y - cross_val_predict(peer, X, y, cv=5))
    return norm.logpdf(held, peer.fit(X, y).predict(new), sd)


def poisson_peer(X: Any, y: Array, new: Any, held: Array) -> Array:
    """Log probabilities of held-out counts."""
    pipeline = make_pipeline(StandardScaler(), PoissonRegressor(solver="newton-cholesky", max_iter=1000))
    grid = {"poissonregressor__alpha": np.logspace(-6, 2, 9)}
    peer = GridSearchCV(pipeline, grid, scoring="neg_mean_poisson_deviance").fit(X, y)
    return poisson.logpmf(held, peer.predict(new))


def sets() -> Iterator[tuple[str, Any, Array, list[Any], Any]]:
    """Name, X, y, our estimators and the peer."""
    logistic = [BayesianLogisticRegression()]
    linear = [BayesianLinearRegression(), RobustRegression("student-t", df="auto", engine="gkl")]
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer", X, y, logistic, logistic_peer
    X, y = load_diabetes(return_X_y=True, scaled=False)
    yield "diabetes", X, y, linear, ridge_peer
    if not DATA.is_dir():
        print(f"no folder {DATA.parent.name}/{DATA.name} beside the repository: a9a, Boston and doctor visits left out")
        return
    with np.load(DATA / "a9a.npz") as file:
        rows = sparse.csr_array(
            (file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]), dtype=float
        )
        order = np.random.default_rng(0).permutation(int(file["n_train"]))[:2500]
        X, y = rows[order], file["y"][order]
    yield "a9a, 2500 rows, sparse", X[:, np.flatnonzero(X.sum(axis=0))], y, logistic, logistic_peer
    frame = pd.read_csv(DATA / "boston_housing.csv.gz")
    yield "Boston", frame.drop(columns="medv").to_numpy(float), frame["medv"].to_numpy(float), linear, ridge_peer
    frame = pd.read_csv(DATA / "nmes1988.csv.gz").sample(2000, random_state=0)
    other = ["visits", "nvisits", "ovisits", "novisits", "emergency", "hospital"]
    X = pd.get_dummies(frame.drop(columns=[c for c in other if c in frame]), drop_first=True).to_numpy(float)
    yield "doctor visits, 2000 rows", X, frame["visits"].to_numpy(float), [BayesianPoissonRegression()], poisson_peer


def densities() -> list[tuple]:
    """Rows: set, estimator, our and the peer's density, their difference with its error, coverage, dispersion."""
    found = []
    for name, X, y, models, peer in sets():
        folds = list(KFold(5, shuffle=True, random_state=0).split(y))
        theirs = np.concatenate([peer(X[a], y[a], X[b], y[b]) for a, b in folds])
        for model in models:
            ours, inside, extra = [], [], "–"
            for train, test in folds:
                model.fit(X[train], y[train])
                ours.append(model.log_predictive_density(X[test], y[test]))
                if not hasattr(model, "predict_proba"):
                    low, high = model.predict_interval(X[test], 0.9).T
                    inside.append((y[test] >= low) & (y[test] <= high))
            if hasattr(model, "dispersion_"):
                extra = f"{model.dispersion_:.1f}"
            gap = np.concatenate(ours) - theirs
            covered = f"{100 * np.concatenate(inside).mean():.1f} %" if inside else "–"
            error = gap.std() / np.sqrt(len(gap))
            verdict = "yes" if gap.mean() >= -error else "NO"
            mean = np.concatenate(ours).mean()
            found.append((name, type(model).__name__, mean, theirs.mean(), gap.mean(), error, verdict, covered, extra))
    return found


def actions_of(n: int, d: int) -> dict[str, Callable[[], Any]]:
    """The bare engine, and the estimator with a given and with a learnt prior scale, on the same model."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = X @ (0.3 * rng.standard_normal(d)) + rng.logistic(size=n) > 0.0
    given, learnt = BayesianLogisticRegression(engine="gkl", prior_scale=1.0), BayesianLogisticRegression(engine="gkl")
    centred = np.column_stack([X - X.mean(axis=0), np.ones(len(X))])
    prior = GaussianFactor(cov=np.append(X.std(axis=0) ** -2.0, 100.0))
    model = LatentLinearModel([prior, SiteFactor(centred, potentials.Logit(y))])
    return {
        "bare engine": lambda: infer(model, "gkl"),
        "prior_scale=1.0": lambda: given.fit(X, y),
        "prior_scale='auto'": lambda: learnt.fit(X, y),
    }


def cost(repeats: int) -> list[tuple]:
    """Rows: what, seconds and processor seconds, each also over the bare engine."""
    taken = {name: clocks(action, repeats) for name, action in actions_of(16_000, 123).items()}
    wall, used = taken["bare engine"]
    return [(name, w, w / wall, c, c / used) for name, (w, c) in taken.items()]


def clocks(action: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Least seconds by the wall clock and of the processor, after one call that warms up."""
    action()
    taken = []
    for _ in range(repeats):
        wall, used = time.perf_counter(), time.process_time()
        action()
        taken.append((time.perf_counter() - wall, time.process_time() - used))
    return min(w for w, _ in taken), min(c for _, c in taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", default=["density", "cost"], choices=["density", "cost"])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print(environment("scikit-learn"), "\n")
    if "density" in arguments.parts:
        columns = ("set", "estimator", "ours", "peer", "difference", "error", "≥ −error", "90 % covers", "dispersion")
        print(table(columns, densities()), "\n")
    if "cost" in arguments.parts:
        print(table(("16,000 × 123", "seconds", "ratio", "CPU seconds", "ratio"), cost(arguments.repeats)))


def tasks(size: str) -> list[Task]:
    """Five fits and predictions on real sets; then what an estimator costs over the bare engine."""
    chosen, n, d = {
        "small": (("breast cancer", "diabetes", "doctor visits, 2000 rows"), 4000, 50),
        "full": (tuple(PEERS), 16_000, 123),
    }[size]
    found = []
    for name in chosen:
        case = f"{name}: fit and predict, five folds"
        found.append(Task(case, OURS[name], partial(our_trial, name)))
        found.append(Task(case, PEERS[name], partial(their_trial, name), "scikit-learn", "peer"))
    case = f"over the bare engine, {n:,} × {d}"
    for what in ("prior_scale=1.0", "prior_scale='auto'"):
        found.append(Task(case, what, partial(cost_trial, n, d, what)))
    return [*found, Task(case, "bare engine", partial(cost_trial, n, d, "bare engine"), role="yardstick")]


def set_of(name: str) -> tuple[Any, Array, Any, Any, list[Any]]:
    """X, y, our first estimator, the peer and the folds of a set."""
    for found, X, y, models, peer in sets():
        if found == name:
            return X, y, models[0], peer, list(KFold(5, shuffle=True, random_state=0).split(y))
    raise FileNotFoundError(f"the set {name!r} is not on this machine")


def our_trial(name: str) -> Trial:
    X, y, model, _, folds = set_of(name)

    def held_out() -> Array:
        parts = [model.fit(X[a], y[a]).log_predictive_density(X[b], y[b]) for a, b in folds]
        return np.concatenate(parts)

    return Trial(held_out, judged)


def their_trial(name: str) -> Trial:
    X, y, _, peer, folds = set_of(name)
    return Trial(lambda: np.concatenate([peer(X[a], y[a], X[b], y[b]) for a, b in folds]), judged)


def judged(density: Array) -> dict[str, float | str]:
    return {"held-out log density": float(density.mean())}


def cost_trial(n: int, d: int, what: str) -> Trial:
    return Trial(actions_of(n, d)[what])


if __name__ == "__main__":
    run_alone(__file__, main)
