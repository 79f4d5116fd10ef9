"""Every covariance on the logistic problems of 002_71af9439e55c646f §5.2, as Tables 5.2, 5.4 and 5.5 have them.

Data: w ~ N(0, I); covariates standard normal, mixed by the identity plus one standard normal entry a row, scaled to
unit variance; labels from the model. For D = 250, 500, 1000, N = D/2, D, 5D and K = 0.05 D, 0.1 D: seconds, bound per
datum, ‖m − w‖ (the plain norm; the tables print another quantity), and the mean log probability of 10 D held-out labels
(5 D at D = 1000), mean ± standard error over the seeds. Natural index order, as there. "document" is the subspace basis
of the text (the smallest eigenvectors of the precision), "subspace" ours.

    python benchmarks/covariances.py [--dims 250 500 1000] [--seeds 10] [--tol 1e-3]
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

from _table import environment, table
from latlin import ConvergenceWarning, GaussianFactor, LatentLinearModel, Posterior, SiteFactor, infer, potentials
from latlin.datasets import correlated_logistic
from latlin.engines import GaussianKL, LocalBound

Array = np.ndarray


def engines(d: int, k: int, tol: float) -> dict[str, object]:
    """The covariances of the tables, with theirs and our stopping rule (largest gradient entry)."""
    return {
        "diagonal": GaussianKL(covariance="diagonal", tol=tol),
        "chevron": GaussianKL(covariance="chevron", rank=k, order="natural", tol=tol),
        "chevron, ordered": GaussianKL(covariance="chevron", rank=k, tol=tol),
        "banded": GaussianKL(covariance="banded", bandwidth=k, tol=tol),
        "subspace": GaussianKL(covariance="subspace", rank=k, tol=tol),
        "low-rank": GaussianKL(covariance="low-rank", rank=k, tol=tol),
        "full": GaussianKL(tol=tol),
        "LVB Lanczos": LocalBound(variances="lanczos", rank=k, max_iter=10),
    }


def document_basis(x: Array, full: Posterior, k: int) -> Array:
    """What §4.3.1.3 says: the eigenvectors of the precision with the smallest eigenvalues."""
    assert full.sites is not None
    precision = np.eye(x.shape[1]) + x.T @ (full.sites.gamma[:, None] * x)
    return np.linalg.eigh(precision)[1][:, :k]


def measure(
    name: str, engine: object, data: tuple[Array, ...], model: LatentLinearModel
) -> tuple[list[float], Posterior]:
    """Seconds, bound/N, ‖m − w‖ and the held-out log probability."""
    x, _, x_test, y_test, w = data
    start = time.perf_counter()
    post = infer(model, engine)
    elapsed = time.perf_counter() - start
    there = post.project(x_test)
    p = potentials.Logit(1).predictive(there.mean, there.variance).probabilities[:, 1]
    held_out = float(np.mean(np.log(np.where(y_test > 0, p, 1.0 - p))))
    bound = post.log_evidence / len(x) if post.evidence_kind != "approximation" else float("nan")
    return [elapsed, bound, float(np.linalg.norm(post.mean - w)), held_out], post


def setting(d: int, n: int, k: int, seeds: int, tol: float) -> list[list[str]]:
    """One column of a table: a row a covariance."""
    results: dict[str, list[list[float]]] = {}
    for seed in range(seeds):
        data = correlated_logistic(d, n, 5 * d if d >= 1000 else 10 * d, seed)
        model = LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(data[0], potentials.Logit(data[1]))])
        for name, engine in engines(d, k, tol).items():
            values, post = measure(name, engine, data, model)
            results.setdefault(name, []).append(values)
            if name == "full":
                basis = document_basis(data[0], post, k)
                document = GaussianKL(covariance="subspace", rank=k, basis=basis, tol=tol)
                results.setdefault("document", []).append(measure("document", document, data, model)[0])
    return [[f"{d}", f"{n}", f"{k}", name, *map(_shown, np.array(values).T)] for name, values in results.items()]


def _shown(values: Array) -> str:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{values.mean():.3f} ± {error:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dims", type=int, nargs="+", default=[250, 500, 1000])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tol", type=float, default=1e-3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(environment())
    setting(20, 30, 2, 1, 1e-3)
    columns = ["D", "N", "K", "covariance", "seconds", "bound/N", "‖m − w‖", "held-out log p"]
    for d in options.dims:
        for n in (d // 2, d, 5 * d):
            for k in (round(0.05 * d + 0.1), round(0.1 * d)):
                print(table(columns, setting(d, n, k, options.seeds, options.tol)), flush=True)


if __name__ == "__main__":
    main()
