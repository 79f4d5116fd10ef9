"""Large sparse Bayesian logistic regression: 50,000 × 40,000, 75 non-zeros per row, columns by Zipf's law.

Diagonal, chevron and subspace Gaussian KL against the MAP of scikit-learn's lbfgs. Each runs in a process of its own on
data read from a file, so that its peak memory is its own: what is reported is the largest resident memory less that of
the process with libraries loaded, kernels compiled and the matrix in memory. scikit-learn stops when the largest entry
of the *mean* gradient is below its tol; the sums here stop at tol × N, the same rule.

    python benchmarks/logistic_sparse.py [--rows 50000] [--columns 40000] [--tol 1e-4]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from scipy import sparse

from _suite import run_alone
from _table import environment, table
from _task import Task, Trial
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.engines import GaussianKL

METHODS: dict[str, dict[str, object] | None] = {
    "scikit-learn lbfgs (MAP)": None,
    "diagonal": {"covariance": "diagonal"},
    "chevron 50": {"covariance": "chevron", "rank": 50},
    "subspace 100": {"covariance": "subspace", "rank": 100, "inner": "diagonal"},
}


def generate(n: int, d: int, width: int, seed: int = 0) -> tuple[sparse.csr_array, np.ndarray]:
    """Unit-length rows of positive entries in Zipf-distributed columns, labels from w ~ 3 N(0, I)."""
    rng = np.random.default_rng(seed)
    shares = np.cumsum(1.0 / np.arange(1, d + 1))
    columns = np.searchsorted(shares / shares[-1], rng.random(n * width)).astype(np.int32)
    starts = np.arange(0, n * width + 1, width, dtype=np.int32)
    x = sparse.csr_array((rng.random(n * width) + 0.5, columns, starts), shape=(n, d))
    x.sum_duplicates()
    x.data /= np.repeat(np.sqrt(np.add.reduceat(x.data**2, x.indptr[:-1])), np.diff(x.indptr))
    y = rng.random(n) < 1.0 / (1.0 + np.exp(-3.0 * (x @ rng.standard_normal(d))))
    return x, y.astype(int)


def load(path: str) -> tuple[sparse.csr_array, np.ndarray]:
    with np.load(path) as file:
        return sparse.csr_array((file["data"], file["indices"], file["indptr"]), shape=file["shape"]), file["y"]


def peak() -> float:
    """Largest resident memory so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def resident() -> float:
    """Resident memory now, in MB (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def run(name: str, path: str, tol: float, repeats: int) -> list[object]:
    """Seconds, processor seconds, steps, bound and rise of the peak memory of one method."""
    x, y = load(path)
    action = _action(name, tol * len(y), tol)
    action(x[:400], y[:400])
    before, seconds, processor = resident(), [], []
    for _ in range(repeats):
        start, used = time.perf_counter(), time.process_time()
        steps, bound, mean = action(x, y)
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - used)
    error = float(np.mean((x @ mean > 0.0) != (y > 0)))
    return [name, min(seconds), min(processor), steps, bound, peak() - before, 100.0 * error]


def _action(name: str, gradient: float, tol: float):
    options = METHODS[name]

    def bayes(x: sparse.csr_array, y: np.ndarray) -> tuple[int, float, np.ndarray]:
        model = LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(x, potentials.Logit(y))])
        post = infer(model, GaussianKL(**options, tol=gradient))
        return post.n_iter, post.log_evidence, post.mean

    def scikit(x: sparse.csr_array, y: np.ndarray) -> tuple[int, float, np.ndarray]:
        from sklearn.linear_model import LogisticRegression

        fitted = LogisticRegression(C=1.0, fit_intercept=False, tol=tol, max_iter=1000).fit(x, y)
        return int(fitted.n_iter_[0]), float("nan"), fitted.coef_[0]

    return scikit if options is None else bayes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--columns", type=int, default=40_000)
    parser.add_argument("--width", type=int, default=75)
    parser.add_argument("--tol", type=float, default=1e-4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    options = parser.parse_args()
    x, y = generate(options.rows, options.columns, options.width)
    size = (x.data.nbytes + x.indices.nbytes + x.indptr.nbytes) / 1e6
    print(environment("scikit-learn"))
    print(f"{x.shape[0]} × {x.shape[1]}, {x.nnz} non-zeros, CSR {size:.0f} MB, largest mean gradient {options.tol:g}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "data.npz")
        np.savez(path, data=x.data, indices=x.indices, indptr=x.indptr, shape=x.shape, y=y)
        for name in options.methods:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                rows.append(pool.submit(run, name, path, options.tol, options.repeats).result())
            print(rows[-1], flush=True)
    print(table(["method", "seconds", "processor s", "steps", "bound", "peak memory, MB", "training error, %"], rows))


def tasks(size: str) -> list[Task]:
    """Every covariance over the point estimate, which does less."""
    n, d, width = {"small": (8000, 6000, 50), "full": (50_000, 40_000, 75)}[size]
    case = f"{n:,} × {d:,}, {width} non-zeros per row"
    found = []
    for name, options in METHODS.items():
        whose = ("scikit-learn", "yardstick") if options is None else ("latlin", "latlin")
        found.append(Task(case, name, partial(trial, n, d, width, name), *whose))
    return found


def trial(n: int, d: int, width: int, name: str, tol: float = 1e-4) -> Trial:
    x, y = generate(n, d, width)
    action = _action(name, tol * n, tol)

    def judge(found: tuple[int, float, np.ndarray]) -> dict[str, float | str]:
        error = 100.0 * float(np.mean((x @ found[2] > 0.0) != (y > 0)))
        return {"steps": str(found[0]), "bound": "–" if np.isnan(found[1]) else found[1], "training error, %": error}

    return Trial(lambda: action(x, y), judge)


if __name__ == "__main__":
    run_alone(__file__, main)
