"""Bayesian Gaussian mixtures against scikit-learn: seconds per iteration, to the same bound, agreement; streams.

    python benchmarks/mixture.py [--rows 100000] [--stream 10000000] [--estimators]

Both start from the same kind of data (20 clusters in 10 dimensions) with the same priors. Seconds an iteration are
the difference of two runs of fixed length. The bound is latlin's, with every constant, at the labels each found.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture as Peer

from _suite import run_alone
from _table import environment, seconds, table
from _task import Task, Trial
from latlin.mixture import BayesianGaussianMixture
from latlin.mixture.fixed import RootBelief
from latlin.mixture.gradients import compare_estimators
from latlin.mixture.moments import gather_moments
from latlin.mixture.sweep import make_rows
from latlin.mixture.wishart import WishartParams

D, K = 10, 20
NAMES = {"full": "full", "diagonal": "diag", "spherical": "spherical", "tied": "tied"}


def clusters(n: int, seed: int = 0, dtype: type = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 20 clusters in 10 dimensions, in random order."""
    rng = np.random.default_rng(seed)
    centres = 3.0 * rng.standard_normal((K, D))
    labels = rng.integers(K, size=n)
    rows = rng.standard_normal((n, D), dtype=np.float32).astype(dtype, copy=False)
    for start in range(0, n, 100_000):
        rows[start : start + 100_000] += centres[labels[start : start + 100_000]].astype(dtype)
    return rows, labels


def priors(x: np.ndarray) -> dict[str, object]:
    return {"mean": x.mean(axis=0), "covariance": np.eye(D), "dof": D + 2.0}


def ours(x: np.ndarray, covariance: str, **options: object) -> BayesianGaussianMixture:
    prior = priors(x)
    scale = 1.0 if covariance == "spherical" else np.ones(D) if covariance == "diagonal" else prior["covariance"]
    return BayesianGaussianMixture(
        K,
        covariance=covariance,
        mean_prior=prior["mean"],
        mean_precision=0.01,
        degrees_of_freedom=prior["dof"],
        covariance_prior=scale,
        weight_concentration=1.0 / K,
        random_state=0,
        **options,
    )


def theirs(x: np.ndarray, covariance: str, **options: object) -> Peer:
    prior = priors(x)
    scale = {"full": prior["covariance"], "tied": prior["covariance"], "diagonal": np.ones(D), "spherical": 1.0}
    return Peer(
        n_components=K,
        covariance_type=NAMES[covariance],
        weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=1.0 / K,
        mean_prior=prior["mean"],
        mean_precision_prior=0.01,
        degrees_of_freedom_prior=prior["dof"],
        covariance_prior=scale[covariance],
        init_params="k-means++",
        reg_covar=0.0,
        random_state=0,
        **options,
    )


def stepper(x: np.ndarray, covariance: str) -> Callable[[], object]:
    """One step of coordinate ascent: the pass, the update and the bound."""
    model = ours(x, covariance)
    data = make_rows(x, None)
    mixture, sample = model._prepared(data)
    moments = sample.moments(mixture, np.arange(len(sample.rows)) % K, K)
    return lambda: mixture.evaluate(data, mixture.belief(moments))


def per_iteration_ours(x: np.ndarray, covariance: str) -> float:
    return seconds(stepper(x, covariance), repeats=7)[0]


def per_iteration_theirs(x: np.ndarray, covariance: str) -> float:
    def run(iterations: int) -> float:
        start = time.perf_counter()
        theirs(x, covariance, max_iter=iterations, tol=0.0).fit(x)
        return time.perf_counter() - start

    run(1)
    short, long = (min(run(iterations) for _ in range(2)) for iterations in (2, 10))
    return (long - short) / 8.0


def same_responsibilities(x: np.ndarray) -> float:
    """Largest difference of responsibilities when latlin is given scikit-learn's posterior (full covariance)."""
    peer = theirs(x, "full", max_iter=20).fit(x)
    model = ours(x, "full")
    mixture, _ = model._prepared(make_rows(x, None))
    scale = peer.covariances_ * peer.degrees_of_freedom_[:, None, None]
    roots = np.linalg.cholesky(scale)
    params = WishartParams(peer.means_, peer.mean_precision_, peer.degrees_of_freedom_, roots)
    log_weights = mixture.weights.expected_log(peer.weight_concentration_)
    joint = mixture.components.joint(x, params, log_weights)
    r = np.exp(joint - joint.max(axis=1, keepdims=True))
    return float(np.abs(r / r.sum(axis=1, keepdims=True) - peer.predict_proba(x)).max())


def bound_of(model: BayesianGaussianMixture, x: np.ndarray, labels: np.ndarray) -> float:
    """latlin's bound after two steps from somebody's labels."""
    data = make_rows(x, None)
    mixture, _ = model._prepared(data)
    moments = gather_moments(mixture.components, x, np.ones(len(x)), labels, K)
    for _ in range(3):
        bound, moments = mixture.evaluate(data, mixture.belief(moments))
    return bound


def against_scikit_learn(n: int) -> None:
    x, labels = clusters(n)
    rows = []
    for covariance in NAMES:
        mine, other = per_iteration_ours(x, covariance), per_iteration_theirs(x, covariance)
        my_time, model = seconds(lambda c=covariance: ours(x, c, n_init=1).fit(x), 1, warm=False)
        its_time, peer = seconds(lambda c=covariance: theirs(x, c, max_iter=60).fit(x), 1, warm=False)
        agreement = [adjusted_rand_score(labels, fit.predict(x)) for fit in (model, peer)]
        bounds = [model.lower_bound_, bound_of(model, x, peer.predict(x))]
        rows.append([covariance, mine, other, other / mine, my_time, its_time, *bounds, *agreement])
    head = ["covariance", "s/iteration", "sklearn", "ratio", "fit s", "sklearn fit s", "bound", "sklearn's bound"]
    print(table([*head, "ARI", "sklearn ARI"], rows))
    print(f"full: largest difference of responsibilities at the same posterior {same_responsibilities(x):.1e}")


def stream(n: int) -> None:
    """Run in a process of its own, so that the peak of memory is its own."""
    x, labels = clusters(n, dtype=np.float32)
    ours(x[:5000], "full", batch_size=4096).partial_fit(x[:5000])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    model = ours(x[:5000], "full", batch_size=4096).partial_fit(x)
    elapsed = time.perf_counter() - start
    above = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    ari = adjusted_rand_score(labels[:200_000], model.predict(x[:200_000]))
    print(
        table(
            ["rows", "data MiB", "seconds", "MiB above the data", "ARI"], [[n, x.nbytes / 2**20, elapsed, above, ari]]
        )
    )


def estimators() -> None:
    """Bias, variance and cost of every gradient estimator on 700 rows of 7 clusters, K = 10."""
    rng = np.random.default_rng(0)
    x = 6.0 * rng.standard_normal((7, 2))[rng.integers(7, size=700)] + rng.standard_normal((700, 2))
    model = BayesianGaussianMixture(10, covariance="fixed", random_state=0)
    data = make_rows(x, None)
    mixture, sample = model._prepared(data)
    moments = sample.moments(mixture, rng.integers(10, size=700), 10)
    for _ in range(5):
        moments = mixture.evaluate(data, mixture.belief(moments)).moments
    print(compare_estimators(mixture, data, RootBelief.of(mixture.belief(moments)), repeats=1000, random_state=0))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--stream", type=int, default=10_000_000)
    parser.add_argument("--only-stream", type=int)
    parser.add_argument("--estimators", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.only_stream:
        stream(arguments.only_stream)
        return
    print(environment("scikit-learn", "numba"))
    against_scikit_learn(arguments.rows)
    if arguments.stream:
        command = [sys.executable, __file__, "--only-stream", str(arguments.stream)]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if arguments.estimators:
        estimators()


def tasks(size: str) -> list[Task]:
    """An iteration and a whole fit for every covariance, then a stream."""
    n, kinds, rows = {
        "small": (20_000, ("full", "diagonal"), 1_000_000),
        "full": (100_000, tuple(NAMES), 10_000_000),
    }[size]
    found = []
    for kind in kinds:
        for what, mine, other in (
            ("an iteration", our_step_trial, their_step_trial),
            ("a fit", our_fit_trial, their_fit_trial),
        ):
            case = f"{what}, {kind}, {n:,} × {D}, K = {K}"
            found.append(Task(case, "latlin", partial(mine, n, kind)))
            found.append(Task(case, "scikit-learn", partial(other, n, kind), "scikit-learn", "peer"))
    case = f"a stream of {rows:,} float32 rows, one pass"
    return [*found, Task(case, "latlin", partial(stream_trial, rows))]


def our_step_trial(n: int, covariance: str) -> Trial:
    # whitened rows and second moments, N·K·D² each where covariances are full, N·K·D·4 where they are diagonal
    work = 2.0 * n * K * D**2 if covariance == "full" else 4.0 * n * K * D
    return Trial(stepper(clusters(n)[0], covariance), flops=lambda _: work)


def their_step_trial(n: int, covariance: str) -> Trial:
    """A fit cannot be asked for one iteration: the difference of two fits is what is compared."""
    x, _ = clusters(n)
    return Trial(lambda: per_iteration_theirs(x, covariance), cost=float)


def our_fit_trial(n: int, covariance: str) -> Trial:
    x, labels = clusters(n)
    return Trial(
        lambda: ours(x, covariance, n_init=1).fit(x),
        lambda fit: {"ARI": adjusted_rand_score(labels, fit.predict(x)), "bound a row": fit.lower_bound_ / n},
    )


def their_fit_trial(n: int, covariance: str) -> Trial:
    x, labels = clusters(n)

    def judge(fit: Peer) -> dict[str, float | str]:
        found = fit.predict(x)
        return {
            "ARI": adjusted_rand_score(labels, found),
            "bound a row": bound_of(ours(x, covariance), x, found) / n,
        }

    return Trial(lambda: theirs(x, covariance, max_iter=60).fit(x), judge)


def stream_trial(n: int) -> Trial:
    x, labels = clusters(n, dtype=np.float32)
    return Trial(
        lambda: ours(x[:5000], "full", batch_size=4096).partial_fit(x),
        lambda fit: {"ARI": adjusted_rand_score(labels[:100_000], fit.predict(x[:100_000]))},
    )


if __name__ == "__main__":
    run_alone(__file__, main)
