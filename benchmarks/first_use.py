"""What a user meets first: small problems on all threads and on one, first calls, learnt scales and diagnoses.

Every line is a process of its own. "Small problems" are twenty fits of seven families at 200 × 5 and 1,000 × 20, after
one that compiles; first calls start with an empty compile cache and count from the start of Python.

    python benchmarks/first_use.py [--parts threads first learnt]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from functools import cache, partial

from _suite import run_alone
from _table import environment, table
from _task import Task, Trial

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

SMALL = """
import time, warnings
import numpy as np
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials as p
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
def models():
    for n, d in ((200, 5), (1000, 20)):
        X = rng.standard_normal((n, d))
        x = X @ rng.standard_normal(d) / np.sqrt(d)
        y, t, c = x + rng.logistic(size=n) > 0, x + 0.3 * rng.standard_t(4, n), rng.poisson(np.exp(x))
        for site in (p.Logit(y), p.Probit(y), p.StudentT(4.0, t, 0.3), p.Laplace(t, 0.3), p.Poisson(c),
                     p.NegativeBinomial(c, 2.0), p.Ordinal(np.digitize(t, [-1, 0, 1]), [-1.0, 0.0, 1.0])):
            yield LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(X, site)])
every = [(m, e) for e in ("gkl", "laplace") for m in models() if e == "gkl" or m.smooth][:20]
for model, engine in every:
    infer(model, engine)
best = []
for model, engine in every:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        infer(model, engine)
        times.append(time.perf_counter() - start)
    best.append(min(times))
print(sum(best))
"""

FIRST = {
    "BayesianLogisticRegression().fit, 200 × 5": """
import numpy as np
from latlin.linear import BayesianLogisticRegression
rng = np.random.default_rng(0)
X = rng.standard_normal((200, 5))
BayesianLogisticRegression().fit(X, X[:, 0] + rng.logistic(size=200) > 0)
""",
    'infer(model, "gkl"), 1,000 × 20': """
import numpy as np
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
rng = np.random.default_rng(0)
X = rng.standard_normal((1000, 20))
infer(LatentLinearModel([GaussianFactor(cov=1.0), SiteFactor(X, potentials.Logit(rng.random(1000) < 0.5))]), "gkl")
""",
    "a sparse chevron, 2,000 × 300": """
import numpy as np
from scipy import sparse
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials
rng = np.random.default_rng(0)
X = sparse.random_array((2000, 300), density=0.02, rng=rng, format="csr")
sites = SiteFactor(X, potentials.Logit(rng.random(2000) < 0.5))
infer(LatentLinearModel([GaussianFactor(cov=1.0, dim=300), sites]), engines.GaussianKL(covariance="chevron", rank=10))
""",
}

LEARNT = """
import time
import numpy as np
from latlin.linear import BayesianLogisticRegression
rng = np.random.default_rng(0)
n, d = {n}, {d}
X = rng.standard_normal((n, d))
y = X @ rng.standard_normal(d) * 2 / np.sqrt(d) + rng.logistic(size=n) > 0
def best(action):
    action()
    times = []
    for _ in range(3):
        start = time.process_time()
        result = action()
        times.append(time.process_time() - start)
    return min(times), result
given, model = best(lambda: BayesianLogisticRegression(prior_scale=1.0).fit(X, y))
auto, _ = best(lambda: BayesianLogisticRegression().fit(X, y))
checked, _ = best(lambda: model.posterior_.diagnose(random_state=0))
print(given, auto / given, checked / given)
"""


def run(code: str, **variables: str) -> tuple[float, str]:
    """Seconds from the start of a process to its end, and what it printed."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | variables, capture_output=True, text=True, check=True
    )
    return time.perf_counter() - start, done.stdout


def threads() -> str:
    free = {name: str(os.cpu_count() or 1) for name in THREADS}
    both = [float(run(SMALL, **limits)[1]) for limits in (free, dict.fromkeys(THREADS, "1"))]
    row = [("20 small problems", *both, both[0] / both[1])]
    return table(("workload", "s, all threads", "s, one thread", "ratio"), row)


def first() -> str:
    rows = []
    for name, code in FIRST.items():
        with tempfile.TemporaryDirectory() as folder:
            rows.append((name, run(code, NUMBA_CACHE_DIR=folder)[0], run(code, NUMBA_CACHE_DIR=folder)[0]))
    return table(("process", "s, empty cache", "s, warm"), rows)


def learnt() -> str:
    rows = []
    for n, d in ((1000, 20), (4000, 50), (16000, 123)):
        numbers = run(LEARNT.format(n=n, d=d), **dict.fromkeys(THREADS, "1"))[1].split()
        rows.append((f"{n} × {d}", *map(float, numbers)))
    return table(("logistic", "s, scale given", "scale learnt, in fits", "diagnosis, in fits"), rows)


@cache
def once(code: str, *variables: tuple[str, str]) -> tuple[float, str]:
    """As `run`, whatever the number of calls: what is compared is what the process says."""
    return run(code, **dict(variables))


@cache
def first_call(code: str, warm: bool) -> float:
    """Seconds of a process that starts with an empty compile cache, or of the second one with the usual cache."""
    if warm:
        run(code)
        return run(code)[0]
    with tempfile.TemporaryDirectory() as folder:
        return run(code, NUMBA_CACHE_DIR=folder)[0]


def tasks(size: str) -> list[Task]:
    """Small problems on all threads and on one; first calls; scales that are learnt, and diagnoses, in fits."""
    case, found = "20 small problems", []
    for method, count, role in (("all threads", os.cpu_count() or 1, "latlin"), ("one thread", 1, "yardstick")):
        limits = tuple((name, str(count)) for name in THREADS)
        action = partial(once, SMALL, *limits)
        found.append(Task(case, method, partial(Trial, action, cost=lambda done: float(done[1])), role=role))
    for name, code in FIRST.items():
        for method, warm, role in (("empty compile cache", False, "latlin"), ("warm", True, "yardstick")):
            found.append(
                Task(
                    f"first call, {name}",
                    method,
                    partial(Trial, partial(first_call, code, warm), cost=float),
                    role=role,
                )
            )
    one = tuple((name, "1") for name in THREADS)
    for n, d in {"small": ((1000, 20), (4000, 50)), "full": ((4000, 50), (16_000, 123))}[size]:
        action = partial(once, LEARNT.format(n=n, d=d), *one)
        for position, method, role in (
            (1, "scale learnt", "latlin"),
            (2, "diagnosis", "latlin"),
            (0, "scale given", "yardstick"),
        ):
            trial = partial(Trial, action, cost=partial(_seconds, position))
            found.append(Task(f"logistic, {n:,} × {d}", method, trial, role=role))
    return found


def _seconds(position: int, done: tuple[float, str]) -> float:
    """What `LEARNT` printed, in seconds."""
    numbers = [float(word) for word in done[1].split()]
    return numbers[0] * (numbers[position] if position else 1.0)


PARTS = {"threads": threads, "first": first, "learnt": learnt}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    sys.stdout.write(environment("numba", "scikit-learn") + "\n")
    for part in arguments.parts:
        sys.stdout.write(f"\n{PARTS[part]()}\n")


if __name__ == "__main__":
    run_alone(__file__, main)
