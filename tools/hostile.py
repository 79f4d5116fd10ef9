"""Random models against brute force: nothing false, nothing lost.

    python tools/hostile.py 10000            so many models, seeds 0, 1, 2, …
    python tools/hostile.py 500 2000         so many from this seed on

Every model has one to two dimensions, any potential, prior, weights, offsets and kind of rows, and is given to one
engine. A refusal must be a ValueError in words. What is fitted must hold all of:

- a lower bound is at most log Z, the integral over a grid; exact evidence is log Z;
- no perturbation raises a bound that has converged (full Gaussian KL);
- the order of the rows, and rows that are dense, sparse or an operator, make no difference;
- what is saved and loaded has the same numbers;
- a checkpoint is resumed to the same numbers by the same model, and refused by any other.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

import latlin
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials

ENGINES = {
    "map": engines.MAP(),
    "laplace": engines.Laplace(),
    "mean-field": engines.MeanField(),
    "lvb": engines.LocalBound(),
    "ep": engines.ExpectationPropagation(),
    "gkl": engines.GaussianKL(),
    "diagonal": engines.GaussianKL(covariance="diagonal"),
    "chevron": engines.GaussianKL(covariance="chevron", rank=1),
    "low-rank": engines.GaussianKL(covariance="low-rank", rank=1),
    "subspace": engines.GaussianKL(covariance="subspace", rank=1),
    "ai-kl": engines.AffineKL(base="skew-normal", tol=1e-4),
}
FAMILIES = {
    "logit": lambda y, s: potentials.Logit(y > 0),
    "probit": lambda y, s: potentials.Probit(y > 0),
    "poisson": lambda y, s: potentials.Poisson(np.round(np.minimum(np.abs(y), 30.0))),
    "ordinal": lambda y, s: potentials.Ordinal(np.clip(np.round(y + 1), 0, 2), [-0.5, 0.8]),
    "gaussian": potentials.Gaussian,
    "laplace": potentials.Laplace,
    "logistic": potentials.Logistic,
    "student": lambda y, s: potentials.StudentT(3.0, y, s),
    "mixture": lambda y, s: potentials.GaussianMixture([0.7, 0.3], 0.0, [0.1 * s, s]),
    "custom": lambda y, s: potentials.Custom(lambda x, a: -np.logaddexp(0.0, a - x), args=[y], log_concave=True),
}
KINDS = {"dense": np.asarray, "sparse": sparse.csr_array, "operator": aslinearoperator}
#: how far below or above the integral on a grid a bound may be by numerical error
SLACK = 1e-5


class Case(NamedTuple):
    """What a random model is made of."""

    family: str
    engine: str
    kind: str
    rows: np.ndarray
    y: np.ndarray
    scale: float
    weight: np.ndarray | None
    offset: np.ndarray | None
    prior: list[Any]

    def model(self, order: np.ndarray | None = None, kind: str | None = None) -> LatentLinearModel:
        """The model, its rows in some order and of some kind."""
        at = slice(None) if order is None else order
        weight, offset = (None if part is None else part[at] for part in (self.weight, self.offset))
        site = FAMILIES[self.family](self.y[at], self.scale)
        return LatentLinearModel(
            [*self.prior, SiteFactor(KINDS[kind or self.kind](self.rows[at]), site, weight=weight, offset=offset)]
        )


def draw(seed: int) -> Case:
    """A random case."""
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(1, 3)), int(rng.integers(1, 6))
    cov = 10.0 ** rng.uniform(-1, 1) * np.eye(d) + 0.2 * np.ones((d, d)) * rng.integers(2)
    priors: list[list[Any]] = [
        [GaussianFactor(rng.standard_normal(d), cov)],
        [GaussianFactor(cov=np.diagonal(cov).copy(), dim=d)],
        [GaussianFactor(dim=d), GaussianFactor(rng.standard_normal(1), 0.5, H=rng.standard_normal((1, d)))],
        [SiteFactor(None, potentials.Laplace(np.zeros(d), 1.0))],
        [],
    ]
    return Case(
        str(rng.choice(list(FAMILIES))),
        str(rng.choice(list(ENGINES))),
        str(rng.choice(list(KINDS))),
        10.0 ** rng.uniform(-1, 1) * rng.standard_normal((n, d)),
        rng.standard_normal(n) * rng.choice([1.0, 5.0]),
        10.0 ** rng.uniform(-1, 1),
        rng.integers(1, 3, n).astype(float) if rng.random() < 0.3 else None,
        rng.standard_normal(n) if rng.random() < 0.3 else None,
        priors[rng.choice(len(priors), p=[0.3, 0.3, 0.2, 0.1, 0.1])],
    )


def fit(model: LatentLinearModel, engine: Any, **options: Any) -> Any:
    """The posterior, or None after a refusal in words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return infer(model, engine, **options)
        except ValueError as error:
            if len(str(error)) > 20:
                return None
            raise


def log_integral(model: LatentLinearModel, post: Any) -> float:
    """log Z by a sum over a grid about a posterior; its tails are left out, so that it is at most log Z."""
    d = model.dim
    axis = np.linspace(-14.0, 14.0, 20001 if d == 1 else 701)
    root = np.linalg.cholesky(post.covariance())
    z = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)
    points = post.mean + z @ root.T
    logs = sum(_log_factor(factor, points) for factor in (*model.gaussians, *model.sites))
    top = float(np.max(logs))
    cell = d * np.log(axis[1] - axis[0]) + float(np.log(np.diagonal(root)).sum())
    return top + float(np.log(np.exp(logs - top).sum())) + cell


def _log_factor(factor: Any, points: np.ndarray) -> np.ndarray:
    x = points if factor.H is None else np.asarray((factor.H @ points.T).T)
    if isinstance(factor, SiteFactor):
        x = x if factor.offset is None else x + factor.offset
        values = factor.potential.log_density(x)
        return np.sum(values if factor.weight is None else factor.weight * values, axis=1)
    size = x.shape[1]
    cov = np.broadcast_to(factor.cov, size) * np.eye(size) if factor.cov.ndim < 2 else factor.cov
    away = x - factor.mean
    solved = np.linalg.solve(cov, away.T).T
    return -0.5 * np.sum(away * solved, axis=1) - 0.5 * np.linalg.slogdet(2.0 * np.pi * cov)[1]


def check_evidence(case: Case, model: LatentLinearModel, post: Any) -> None:
    """A bound is one, and what is exact is exact."""
    if post.evidence_kind not in ("lower bound", "exact") or not np.all(post.variance > 0.0):
        return
    truth = log_integral(model, post)
    allowed = SLACK * (1.0 + abs(truth)) + post.bound_error
    # a grid that misses a far mode is below log Z; a wide one shows whether it does
    if post.log_evidence > truth + allowed:
        wide = fit(model, "ep") or post
        truth = max(truth, log_integral(model, wide))
    assert post.log_evidence <= truth + allowed, f"bound {post.log_evidence} above log Z {truth}"
    if post.evidence_kind == "exact":
        assert abs(post.log_evidence - truth) <= 1e-3 * (1.0 + abs(truth)), f"{post.log_evidence} is not {truth}"


def check_stationary(case: Case, model: LatentLinearModel, post: Any, rng: np.random.Generator) -> None:
    """No perturbation raises a full Gaussian KL bound that has converged."""
    if case.engine != "gkl" or not post.converged:
        return
    root = np.linalg.cholesky(post.covariance())
    best = post.kl_bound()
    for size in (1e-1, 1e-2):
        shift, twist = rng.standard_normal(model.dim), rng.standard_normal((model.dim, model.dim))
        other = root @ (np.eye(model.dim) + size * twist)
        moved_to = LatentLinearModel([GaussianFactor(post.mean + size * root @ shift, other @ other.T)])
        density = infer(moved_to, "laplace").density
        moved = replace(post, density=density).kl_bound()
        assert moved <= best + 1e-7 * (1.0 + abs(best)), f"a perturbation raises the bound by {moved - best}"


def check_invariant(case: Case, post: Any, rng: np.random.Generator) -> None:
    """The order and the kind of the rows make no difference, where the optimum is unique.

    Squares of an operator's rows are estimated where a factorised covariance needs them: those are left out.
    """
    if case.engine in ("subspace", "low-rank", "chevron"):
        return
    factorised = case.engine in ("mean-field", "diagonal")
    if factorised and case.kind == "operator":
        return
    kinds = ["dense", "sparse"] if factorised else list(KINDS)
    other = case.model(rng.permutation(len(case.rows)), str(rng.choice(kinds)))
    again = fit(other, ENGINES[case.engine])
    if again is None or not (post.converged and again.converged) or not all(p.log_concave for p in _potentials(other)):
        return
    if np.isfinite(post.log_evidence):
        size = 1e-4 * (1.0 + abs(post.log_evidence)) + post.bound_error + again.bound_error
        assert abs(again.log_evidence - post.log_evidence) <= size, f"{again.log_evidence} and {post.log_evidence}"


def _potentials(model: LatentLinearModel) -> list[Any]:
    return [factor.potential for factor in model.sites]


def check_files(case: Case, model: LatentLinearModel, post: Any, folder: Path) -> None:
    """The same numbers after loading; a checkpoint serves its own model and no other."""
    post.save(folder / "post")
    again = latlin.load(folder / "post")
    np.testing.assert_array_equal(again.mean, post.mean)
    np.testing.assert_array_equal(again.variance, post.variance)
    np.testing.assert_equal(again.log_evidence, post.log_evidence)
    for path in folder.glob("c*"):
        path.unlink()
    first = fit(model, ENGINES[case.engine], checkpoint=folder / "c")
    if first is None or not list(folder.glob("c*")):
        return
    resumed = fit(model, ENGINES[case.engine], checkpoint=folder / "c")
    np.testing.assert_allclose(resumed.mean, first.mean, rtol=1e-6, atol=1e-9)
    factor = model.sites[-1]
    offset = 1e-3 if factor.offset is None else 2.0 * factor.offset
    moved = SiteFactor(factor.H, factor.potential, weight=factor.weight, offset=offset)
    changed = LatentLinearModel([*model.gaussians, *model.sites[:-1], moved])
    taken = fit(changed, ENGINES[case.engine], checkpoint=folder / "c")
    assert taken is None, "a checkpoint of another model was taken"


def check(seed: int, folder: Path) -> str:
    """One model; how it went."""
    case, rng = draw(seed), np.random.default_rng([seed, 1])
    model = case.model()
    post = fit(model, ENGINES[case.engine])
    if post is None:
        return "refused"
    assert np.all(np.isfinite(post.mean)), "the mean is not finite"
    check_evidence(case, model, post)
    check_stationary(case, model, post, rng)
    check_invariant(case, post, rng)
    if seed % 4 == 0:
        check_files(case, model, post, folder)
    return "converged" if post.converged else "not converged"


def search(count: int, first: int = 0) -> tuple[Counter[str], list[str]]:
    """So many models from a seed on: how they went, and what was false."""
    found: Counter[str] = Counter()
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            try:
                found[check(seed, Path(folder))] += 1
            except Exception as error:
                case = draw(seed)
                failures.append(f"seed {seed}, {case.family} by {case.engine}: {type(error).__name__}: {error}"[:300])
    return found, failures


def main(arguments: list[str]) -> int:
    count, first = (int(arguments[0]) if arguments else 100), (int(arguments[1]) if len(arguments) > 1 else 0)
    started = time.perf_counter()
    found, failures = search(count, first)
    print("\n".join(failures))
    print(f"{count} models: {dict(found)}, {len(failures)} failures, {time.perf_counter() - started:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
