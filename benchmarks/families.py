"""Families of likelihoods against statsmodels, glum and lifelines: seconds of a fit, and how near the coefficients are.

Every method has the same rows (n × 20, a linear predictor of standard deviation one half). With a flat prior and given
shapes the mode of our Laplace approximation is the maximum of the likelihood, which is what statsmodels' GLM finds;
statsmodels' negative binomial and beta models learn their dispersion, and so do ours by evidence there. glum has no
beta family, and its negative binomial is given the dispersion. Weibull times, some of them censored, stand beside
lifelines, which has standard errors of its maximum; all learn their shape.

Run alone it prints, for every family, the processor seconds of every method, best of some calls that alternate, and the
ratios of Laplace and Gaussian KL to statsmodels (asked: at most 1.5 and 3) and to glum.

    python benchmarks/families.py [--size small] [--only gamma]

With `--classes` it prints instead, for six sets with several classes, the mean log probability of held-out rows and
the share of them that is right: softmax and multinomial probit, one model for all classes, beside one class against
the rest by logit and probit. Every method learns its prior scale by evidence. Sets that are files come from the folder
`--data`.

    python benchmarks/families.py --classes --data FOLDER

With `--visits` it prints for three splits of doctor visits (Deb and Trivedi, 1997: 4,406 people; half of them held out)
the share of held-out counts in 90 % intervals, the share of randomised quantile residuals between the 5 and 95 % points
of a normal, and the log evidence, of the default family and of Poisson's.

    python benchmarks/families.py --visits --data FOLDER
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri
from sklearn import datasets

from _suite import run_alone
from _table import environment, table
from _task import Task, Trial
from latlin.linear import (
    BayesianBetaRegression,
    BayesianBinomialRegression,
    BayesianCountRegression,
    BayesianGammaRegression,
    BayesianLogisticRegression,
    BayesianMultinomialProbitRegression,
    BayesianPoissonRegression,
    BayesianProbitRegression,
    BayesianSoftmaxRegression,
    BayesianSurvivalRegression,
)

Array = np.ndarray
FEATURES = 20
ROWS = {"small": 1_000, "full": 10_000}
TRIALS = 10
#: dispersion, shape or precision of the data
NUMBER = {"negative-binomial": 0.5, "gamma": 3.0, "inverse-gaussian": 2.0, "tweedie": 1.0, "beta": 5.0}
#: prior scale of a standardised coefficient that is flat in effect
FLAT = 1e3
METHODS = ("laplace", "gkl", "statsmodels", "glum")
#: calls of every method, after a first one
REPEATS = 5
FAMILIES = ("poisson", "negative-binomial", "binomial", "gamma", "inverse-gaussian", "tweedie", "beta")


class Data(NamedTuple):
    """Rows, observations, and the coefficients they were drawn with."""

    X: Array
    y: Array
    truth: Array


def draw(family: str, n: int, seed: int = 0) -> Data:
    """Observations of a family."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, FEATURES))
    truth = 0.5 * rng.standard_normal(FEATURES) / np.sqrt(FEATURES)
    eta = 0.5 + X @ truth
    mean, number = np.exp(eta), NUMBER.get(family, 1.0)
    share = 1.0 / (1.0 + np.exp(-eta))
    drawn = {
        "poisson": lambda: rng.poisson(mean),
        "negative-binomial": lambda: rng.poisson(mean * rng.gamma(1.0 / number, number, n)),
        "binomial": lambda: rng.binomial(TRIALS, share),
        "gamma": lambda: mean * rng.gamma(number, 1.0 / number, n),
        "inverse-gaussian": lambda: rng.wald(mean, number),
        "tweedie": lambda: _compound(mean, number, rng),
        "beta": lambda: np.clip(rng.beta(number * share, number * (1.0 - share)), 1e-12, 1.0 - 1e-12),
    }
    return Data(X, np.asarray(drawn[family](), float), truth)


def _compound(mean: Array, dispersion: float, rng: np.random.Generator) -> Array:
    """Tweedie amounts of power 1.5: a Poisson number of gamma amounts."""
    rate = 2.0 * np.sqrt(mean) / dispersion
    count = rng.poisson(rate)
    return np.asarray(rng.gamma(np.maximum(count, 1e-12), 0.5 * dispersion * np.sqrt(mean)) * (count > 0))


def estimator(family: str, engine: str) -> Any:
    """Ours; shapes given where statsmodels has them given."""
    options: dict[str, Any] = {"engine": engine, "prior_scale": FLAT, "intercept_scale": FLAT}
    number = NUMBER.get(family, 1.0)
    return {
        "poisson": lambda: BayesianPoissonRegression(**options),
        "negative-binomial": lambda: BayesianCountRegression("negative-binomial", **options),
        "binomial": lambda: BayesianBinomialRegression(**options),
        "gamma": lambda: BayesianGammaRegression("gamma", shape=number, **options),
        "inverse-gaussian": lambda: BayesianGammaRegression("inverse-gaussian", shape=number, **options),
        "tweedie": lambda: BayesianGammaRegression("tweedie", power=1.5, dispersion=number, **options),
        "beta": lambda: BayesianBetaRegression(**options),
    }[family]()


def fit_ours(data: Data, family: str, engine: str) -> Array:
    more = {"trials": TRIALS} if family == "binomial" else {}
    return np.asarray(estimator(family, engine).fit(data.X, data.y, **more).coef_)


def fit_statsmodels(data: Data, family: str) -> Array:
    import statsmodels.api as sm
    from statsmodels.othermod.betareg import BetaModel

    X = sm.add_constant(data.X)
    if family == "negative-binomial":
        return np.asarray(sm.NegativeBinomial(data.y, X).fit(disp=0).params[1 : FEATURES + 1])
    if family == "beta":
        return np.asarray(BetaModel(data.y, X).fit(disp=0).params[1 : FEATURES + 1])
    log, known = sm.families.links.Log(), sm.families
    kinds = {
        "poisson": lambda: known.Poisson(),
        "binomial": lambda: known.Binomial(),
        "gamma": lambda: known.Gamma(log),
        "inverse-gaussian": lambda: known.InverseGaussian(log),
        "tweedie": lambda: known.Tweedie(log, var_power=1.5),
    }
    y = np.column_stack([data.y, TRIALS - data.y]) if family == "binomial" else data.y
    return np.asarray(sm.GLM(y, X, family=kinds[family]()).fit().params[1:])


def fit_glum(data: Data, family: str) -> Array:
    import glum

    kinds: dict[str, Any] = {
        "poisson": "poisson",
        "binomial": "binomial",
        "gamma": "gamma",
        "inverse-gaussian": "inverse.gaussian",
        "negative-binomial": glum.NegativeBinomialDistribution(NUMBER["negative-binomial"]),
        "tweedie": glum.TweedieDistribution(1.5),
    }
    if family not in kinds:
        raise ImportError(f"glum has no family {family}")
    link = "logit" if family == "binomial" else "log"
    y, weight = (data.y / TRIALS, np.full(len(data.y), float(TRIALS))) if family == "binomial" else (data.y, None)
    model = glum.GeneralizedLinearRegressor(family=kinds[family], link=link, alpha=0.0)
    return np.asarray(model.fit(data.X, y, sample_weight=weight).coef_)


def trial(family: str, n: int, method: str) -> Trial:
    """One method on one family; `apart` is the largest difference from the coefficients of the data."""
    data = draw(family, n)
    if method == "statsmodels":
        import statsmodels  # noqa: F401  (told before anything is timed)

        action = partial(fit_statsmodels, data, family)
    elif method == "glum":
        import glum  # noqa: F401

        action = partial(fit_glum, data, family)
    else:
        action = partial(fit_ours, data, family, method)
    return Trial(action, lambda coef: {"apart": float(np.abs(coef - data.truth).max())})


def tasks(size: str) -> list[Task]:
    """Laplace, Gaussian KL, statsmodels and glum on every family."""
    found = []
    for family in FAMILIES:
        case = f"{family}, {ROWS[size]} × {FEATURES}"
        for engine in ("laplace", "gkl"):
            found.append(Task(case, f"latlin {engine}", partial(trial, family, ROWS[size], engine)))
        peer = partial(trial, family, ROWS[size], "statsmodels")
        found.append(Task(case, "statsmodels", peer, package="statsmodels", role="peer"))
        if family != "beta":
            peer = partial(trial, family, ROWS[size], "glum")
            found.append(Task(case, "glum", peer, package="glum", role="peer"))
    case = f"Weibull times, {ROWS[size]} × {FEATURES}"
    for engine in ("laplace", "gkl"):
        found.append(Task(case, f"latlin {engine}", partial(times_trial, ROWS[size], engine)))
    found.append(
        Task(case, "lifelines", partial(times_trial, ROWS[size], "lifelines"), package="lifelines", role="peer")
    )
    return found


def times_trial(n: int, method: str) -> Trial:
    """Weibull times of shape 1.5, about a third of them censored; `apart` as in `trial`."""
    rng = np.random.default_rng(0)
    X, truth = rng.standard_normal((n, FEATURES)), rng.standard_normal(FEATURES) / (2.0 * np.sqrt(FEATURES))
    times, ends = np.exp(X @ truth) * rng.weibull(1.5, n), 2.5 * rng.random(n) + 0.1
    seen, event = np.minimum(times, ends), times <= ends
    if method == "lifelines":
        import pandas as pd
        from lifelines import WeibullAFTFitter

        frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(FEATURES)]).assign(time=seen, event=event)

        def action() -> Array:
            fitted = WeibullAFTFitter().fit(frame, "time", "event")
            return fitted.params_["lambda_"][[f"x{i}" for i in range(FEATURES)]].to_numpy()
    else:
        model = BayesianSurvivalRegression(
            "weibull", engine=method, prior_scale=FLAT, standardise=False, hyperparameters="maximise"
        )

        def action() -> Array:
            return np.asarray(model.fit(X, seen, event=event).coef_)

    return Trial(action, lambda coef: {"apart": float(np.abs(coef - truth).max())})


#: of a set with several classes: rows at most, columns beyond which it has that many principal components, the share of
#: its rows that is held out, and how often
MOST_ROWS, WIDE, COMPONENTS, HELD_OUT, SPLITS = 300, 13, 8, 0.5, 2
JOINT: dict[str, Callable[[], Any]] = {
    "softmax": BayesianSoftmaxRegression,
    "multinomial probit": BayesianMultinomialProbitRegression,
    "logit, one against the rest": BayesianLogisticRegression,
    "probit, one against the rest": BayesianProbitRegression,
}


def class_sets(folder: Path) -> dict[str, tuple[Array, Array]]:
    """Six sets with three to ten classes: at most some rows, and the leading principal components of wide ones."""
    loads = {"iris": datasets.load_iris, "wine": datasets.load_wine, "digits": datasets.load_digits}
    found = {name: load(return_X_y=True) for name, load in loads.items()}
    for name, column, label in (("oil_flow", "X", "y"), ("mfeat", "kar", "y"), ("breast_tcga", "mrna", "subtype")):
        if (path := folder / f"{name}.npz").exists():
            with np.load(path) as stored:
                found[name] = (stored[column].astype(float), stored[label])
    return {name: (_leading(X), y) for name, (X, y) in found.items()}


def _leading(X: Array) -> Array:
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
    if X.shape[1] <= WIDE:
        return X
    u, d, _ = np.linalg.svd(X, full_matrices=False)
    return np.asarray(u[:, :COMPONENTS] * d[:COMPONENTS])


def compare_classes(folder: Path) -> None:
    """One line per set: for every method the mean log probability of held-out rows and the share that is right."""
    lines = []
    for name, (X, y) in class_sets(folder).items():
        scores: dict[str, list[tuple[float, float]]] = {method: [] for method in JOINT}
        for seed in range(SPLITS):
            order = np.random.default_rng(seed).permutation(len(y))[:MOST_ROWS]
            cut = int(HELD_OUT * len(order))
            test, train = order[:cut], order[cut:]
            for method, make in JOINT.items():
                model = make().fit(X[train], y[train])
                p = model.predict_proba(X[test])
                own = p[np.arange(cut), np.searchsorted(model.classes_, y[test])]
                right = model.classes_[p.argmax(axis=1)] == y[test]
                scores[method].append((float(np.log(own).mean()), float(right.mean())))
        means = {method: np.mean(found, axis=0) for method, found in scores.items()}
        lines.append([name, len(np.unique(y)), *(f"{value:.4f} ({right:.3f})" for value, right in means.values())])
        print(lines[-1], flush=True)
    print(table(["set", "classes", *JOINT], lines))


def compare_visits(folder: Path) -> None:
    """Coverage of 90 % intervals and evidence, by the default of counts and by Poisson."""
    import pandas

    frame = pandas.read_csv(folder / "nmes1988.csv.gz")
    y = frame["visits"].to_numpy(float)
    X = pandas.get_dummies(frame.drop(columns=["visits", "nvisits", "ovisits", "novisits"]), drop_first=True)
    rows = X.to_numpy(float)
    lines = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(y))
        test, train = order[: len(y) // 2], order[len(y) // 2 :]
        for name in ("auto", "poisson"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Poisson's says that it does not fit
                model = BayesianCountRegression(name).fit(rows[train], y[train])
            low, high = model.predict_interval(rows[test], 0.9).T
            inside = float(np.mean((low <= y[test]) & (y[test] <= high)))
            # an interval of counts holds more than it promises; randomised residuals do not
            residual = model.quantile_residuals(rows[test], y[test], random_state=seed)
            even = float(np.mean(np.abs(residual) < ndtri(0.95)))
            lines.append([seed, name, model.family_, inside, even, model.log_evidence_])
            print(lines[-1], flush=True)
    print(table(["split", "asked", "family", "inside 90 %", "residuals inside", "log evidence"], lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS["full"])
    parser.add_argument("--only", default="", help="families whose name contains this")
    parser.add_argument("--classes", action="store_true", help="compare several classes at once with one by one")
    parser.add_argument("--visits", action="store_true", help="coverage and evidence of doctor visits")
    parser.add_argument("--data", type=Path, default=Path(), help="folder of sets that are files")
    options = parser.parse_args()
    print(environment("numba", "statsmodels"))
    if options.visits:
        compare_visits(options.data)
        return
    if options.classes:
        compare_classes(options.data)
        return
    lines = []
    for family in (name for name in FAMILIES if options.only in name):
        seconds, apart = measure(family, options.rows)
        peers = [seconds.get(name, np.nan) for name in ("statsmodels", "glum")]
        lines.append(
            [
                family,
                *(seconds.get(name, np.nan) for name in METHODS),
                *(seconds[engine] / peer for peer in peers for engine in ("laplace", "gkl")),
                max(apart.values()),
            ]
        )
        print(lines[-1], flush=True)
    ratios = [f"{engine}/{peer}" for peer in ("statsmodels", "glum") for engine in ("laplace", "gkl")]
    print(table(["family", *METHODS, *ratios, "apart from the truth"], lines))


def measure(family: str, rows: int) -> tuple[dict[str, float], dict[str, float]]:
    """Processor seconds of every method, best of some calls that alternate, and how far each is from the truth."""
    trials = {}
    for method in METHODS:
        try:
            case = trial(family, rows, method)
            case.action()  # compiled code is loaded
        except ImportError:
            continue
        trials[method] = case
    seconds, apart = dict.fromkeys(trials, np.inf), dict.fromkeys(trials, np.nan)
    for _ in range(REPEATS):
        for method, case in trials.items():
            start = time.process_time()
            found = case.action()
            seconds[method] = min(seconds[method], time.process_time() - start)
            apart[method] = float(case.judge(found)["apart"])
    return seconds, apart


if __name__ == "__main__":
    run_alone(__file__, main)
