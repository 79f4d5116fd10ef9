"""Random models against brute force: nothing false, nothing lost.

    python tools/hostile.py 10000            so many models, seeds 0, 1, 2, …
    python tools/hostile.py 500 2000         so many from this seed on

Every model has one to two dimensions, any potential, prior, weights and offsets, rows that are dense, sparse, an
operator or in blocks, and is given to one engine with one covariance. Sites may have an extra variance, sparse priors a
constraint. Every twentieth model is one of several classes, by softmax or multinomial probit, with one or two numbers
up to a shift of all classes. A refusal must be a ValueError in words. What is fitted must hold all of:

- a lower bound is at most log Z, the integral over a grid; exact evidence is log Z;
- no perturbation raises a bound that has converged (full and diagonal Gaussian KL);
- the order and the kind of the rows, a weight of two for two sites, and other coordinates make no difference;
- what is saved and loaded has the same numbers;
- a checkpoint is resumed to the same numbers by the same model, and refused by one with another row, response, weight,
  offset, scale, prior, family or factor.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator
from scipy.special import log_ndtr, logsumexp

import latlin
from latlin import (
    Constraint,
    GaussianFactor,
    LatentLinearModel,
    SiteFactor,
    covariances,
    engines,
    infer,
    linear,
    potentials,
)
from latlin.distributed.blocks import Block, LocalBlocks
from latlin.distributed.checkpoints import digest_of
from latlin.inference.blocks import BlockModel, Observed
from latlin.numerics.arrays import Array

#: name → the engine for a model of so many dimensions
ENGINES: dict[str, Callable[[int], Any]] = {
    "auto": lambda d: "auto",
    "exact": lambda d: engines.Exact(),
    "map": lambda d: engines.MAP(),
    "laplace": lambda d: engines.Laplace(),
    "mean-field": lambda d: engines.MeanField(),
    "lvb": lambda d: engines.LocalBound(),
    "ep": lambda d: engines.ExpectationPropagation(),
    "parallel-ep": lambda d: engines.ExpectationPropagation(schedule="parallel", damping=0.3),
    "power-ep": lambda d: engines.ExpectationPropagation(power=0.5),
    "gkl": lambda d: engines.GaussianKL(),
    "diagonal": lambda d: engines.GaussianKL("diagonal"),
    "banded": lambda d: engines.GaussianKL(covariances.Banded(1)),
    "block-diagonal": lambda d: engines.GaussianKL(covariances.BlockDiagonal([[j] for j in range(d)])),
    "chevron": lambda d: engines.GaussianKL("chevron", rank=1),
    "low-rank": lambda d: engines.GaussianKL("low-rank", rank=1),
    "pattern": lambda d: engines.GaussianKL(covariances.Sparse(np.triu(np.ones((d, d))))),
    "subspace": lambda d: engines.GaussianKL("subspace", rank=1),
    "ai-kl": lambda d: engines.AffineKL(base="skew-normal", tol=1e-4),
    "t-kl": lambda d: engines.EllipticalKL(),
    "split": lambda d: engines.GaussianKL(components=2),
}
#: engines with a covariance of their own, whose optimum need not be unique
LOCAL = ("subspace", "low-rank", "chevron", "split")
FACTORISED = ("mean-field", "diagonal", "block-diagonal")


def _counts(y: Array) -> Array:
    return np.asarray(np.round(np.minimum(np.abs(y), 30.0)), float)


def _positive(y: Array) -> Array:
    return np.exp(np.clip(0.4 * y, -3.0, 3.0))


def _shares(y: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-np.clip(y, -4.0, 4.0)))


def _sigmoid(x: Array, a: Array) -> Array:
    return -np.logaddexp(0.0, a - x)


#: (responses, a scale) → sites
FAMILIES: dict[str, Callable[[Array, float], potentials.Potential]] = {
    "logit": lambda y, s: potentials.Logit(y > 0),
    "probit": lambda y, s: potentials.Probit(y > 0),
    "step": lambda y, s: potentials.Step(y > 0, 0.05),
    "ordinal": lambda y, s: potentials.Ordinal(np.clip(np.round(y + 1), 0, 2), [-0.5, 0.8]),
    "ordinal-logit": lambda y, s: potentials.Ordinal(np.clip(np.round(y + 1), 0, 2), [-0.5, 0.8], "logit"),
    "binomial": lambda y, s: potentials.Binomial(np.minimum(_counts(y), 8.0), 8.0),
    "beta-binomial": lambda y, s: potentials.BetaBinomial(np.minimum(_counts(y), 8.0), 8.0, s),
    "poisson": lambda y, s: potentials.Poisson(_counts(y)),
    "negative-binomial": lambda y, s: potentials.NegativeBinomial(_counts(y), s),
    "linear-negative-binomial": lambda y, s: potentials.NegativeBinomial(_counts(y), s, "linear"),
    "generalised-poisson": lambda y, s: potentials.GeneralisedPoisson(_counts(y), 0.3),
    "zero-inflated": lambda y, s: potentials.ZeroInflated(potentials.Poisson(_counts(y)), 0.3),
    "hurdle": lambda y, s: potentials.Hurdle(potentials.Poisson(_counts(y)), 0.3),
    "gamma": lambda y, s: potentials.Gamma(_positive(y), s),
    "inverse-gaussian": lambda y, s: potentials.InverseGaussian(_positive(y), s),
    "log-normal": lambda y, s: potentials.LogNormal(_positive(y), s),
    "exponential": lambda y, s: potentials.Exponential(_positive(y), (y > 0).astype(float)),
    "weibull": lambda y, s: potentials.Weibull(_positive(y), (y > 0).astype(float), min(s, 3.0)),
    "log-logistic": lambda y, s: potentials.LogLogistic(_positive(y), (y > 0).astype(float), min(s, 3.0)),
    "tweedie": lambda y, s: potentials.Tweedie(np.where(y < -0.5, 0.0, _positive(y)), 1.5, s),
    "beta": lambda y, s: potentials.Beta(_shares(y), s),
    "gaussian": potentials.Gaussian,
    "laplace": potentials.Laplace,
    "asymmetric-laplace": lambda y, s: potentials.AsymmetricLaplace(0.2, y, s),
    "huber": potentials.Huber,
    "logistic": potentials.Logistic,
    "student": lambda y, s: potentials.StudentT(3.0, y, s),
    "cauchy": potentials.Cauchy,
    "peaked": lambda y, s: potentials.GeneralisedNormal(0.7, y, s),
    "flat": lambda y, s: potentials.GeneralisedNormal(3.0, y, s),
    "horseshoe": potentials.Horseshoe,
    "mixture": lambda y, s: potentials.GaussianMixture([0.7, 0.3], 0.0, [0.1 * s, s]),
    "spike-and-slab": lambda y, s: potentials.SpikeAndSlab(0.4, s),
    "interval": lambda y, s: potentials.Interval(y - s, y + s),
    "truncated": lambda y, s: potentials.Truncated(potentials.Gaussian(y, s), y - s),
    "custom": lambda y, s: potentials.Custom(_sigmoid, args=[y], log_concave=True),
}
KINDS: dict[str, Callable[[Array], Any]] = {
    "dense": np.asarray,
    "sparse": sparse.csr_array,
    "operator": aslinearoperator,
    "blocks": np.asarray,
    "sparse blocks": sparse.csr_array,
}
PRIORS = ("full", "diagonal", "precision", "constrained", "thin", "laplace", "student", "none")
#: how far above the integral on a grid a bound may be by numerical error
SLACK = 1e-5


@dataclass(frozen=True)
class Sites:
    """How a block of rows becomes sites."""

    family: str
    scale: float

    def __call__(self, block: Block) -> Observed:
        return Observed(block.X, FAMILIES[self.family](block.y, self.scale), block.weight, block.offset)

    def kind(self) -> potentials.Potential:
        return FAMILIES[self.family](np.zeros(()), self.scale)


@dataclass(frozen=True)
class Case:
    """What a random model is made of."""

    family: str
    engine: str
    kind: str
    rows: Array
    y: Array
    scale: float
    weight: Array | None
    offset: Array | None
    prior: str
    mean: Array
    cov: Array
    more: tuple[Any, ...] = ()
    extra: Array | None = None

    @property
    def dim(self) -> int:
        return self.rows.shape[1]

    @property
    def choice(self) -> Any:
        """The engine."""
        return ENGINES[self.engine](self.dim)

    def factors(self) -> list[Any]:
        """The prior."""
        d, widths = self.dim, np.diagonal(self.cov).copy()
        kind = "precision" if self.prior == "constrained" else self.prior
        made: dict[str, Callable[[], list[Any]]] = {
            "full": lambda: [GaussianFactor(self.mean, self.cov)],
            "diagonal": lambda: [GaussianFactor(self.mean, widths)],
            "precision": lambda: [GaussianFactor(self.mean, precision=sparse.csr_array(np.linalg.inv(self.cov)))],
            "thin": lambda: [GaussianFactor(dim=d), GaussianFactor(self.mean[:1], 0.5, H=self.cov[:1])],
            "laplace": lambda: [SiteFactor(None, potentials.Laplace(self.mean, np.sqrt(widths)))],
            "student": lambda: [SiteFactor(None, potentials.StudentT(4.0, self.mean, np.sqrt(widths)))],
            "none": list,
        }
        return [*made[kind](), *self.more]

    def in_memory(self) -> LatentLinearModel:
        """The model with all rows here."""
        kind = "dense" if "blocks" in self.kind else self.kind
        site = FAMILIES[self.family](self.y, self.scale)
        rows = SiteFactor(
            KINDS[kind](self.rows), site, weight=self.weight, offset=self.offset, extra_variance=self.extra
        )
        held = [Constraint(self.cov[0], float(self.mean[0]))] if self.prior == "constrained" else []
        return LatentLinearModel([*self.factors(), rows], constraints=held)

    def model(self) -> LatentLinearModel | BlockModel:
        """The model, its rows as they are to be."""
        if "blocks" not in self.kind:
            return self.in_memory()
        blocks = LocalBlocks.of(KINDS[self.kind](self.rows), self.y, self.weight, self.offset, rows=2)
        own = LatentLinearModel(self.factors())
        return BlockModel(own, blocks, Sites(self.family, self.scale), digest_of(blocks, "a file"))


def draw(seed: int) -> Case:
    """A random case."""
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(1, 3)), int(rng.integers(1, 6))
    prior = str(rng.choice(PRIORS, p=[0.22, 0.22, 0.1, 0.07, 0.15, 0.1, 0.05, 0.09]))
    case = Case(
        str(rng.choice(list(FAMILIES))),
        str(rng.choice(list(ENGINES))),
        str(rng.choice(list(KINDS))),
        10.0 ** rng.uniform(-1, 1) * rng.standard_normal((n, d)),
        rng.standard_normal(n) * rng.choice([1.0, 5.0]),
        10.0 ** rng.uniform(-1, 1),
        rng.integers(1, 3, n).astype(float) if rng.random() < 0.3 else None,
        rng.standard_normal(n) if rng.random() < 0.3 else None,
        "full" if prior == "constrained" and d == 1 else prior,
        rng.standard_normal(d),
        10.0 ** rng.uniform(-1, 1) * (np.eye(d) + 0.3 * np.ones((d, d))),
    )
    # blocks take factors on w itself and need one
    if "blocks" in case.kind:
        return replace(case, prior="full") if case.prior in ("constrained", "thin", "none") else case
    return replace(case, extra=rng.exponential(size=n)) if rng.random() < 0.1 else case


def fit(case: Case, **options: Any) -> Any:
    """The posterior, or None after a refusal in words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return infer(case.model(), case.choice, **options)
        except ValueError as error:
            if len(str(error)) > 20:
                return None
            raise


def log_integral(model: LatentLinearModel, mean: Array, cov: Array) -> float:
    """log Z by a sum over a grid about a Gaussian; its tails are left out, so that it is at most log Z."""
    if model.constraints:
        return _log_integral_on_a_line(model, mean, cov)
    d = model.dim
    axis = np.linspace(-14.0, 14.0, 20001) if d == 1 else np.linspace(-11.0, 11.0, 501)
    # an unconverged fit may have a covariance that is singular to the last digit
    values, vectors = np.linalg.eigh(cov)
    root = vectors * np.sqrt(np.maximum(values, 1e-16 * values.max()))
    z = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)
    points = mean + z @ root.T
    logs = sum(_log_factor(factor, points) for factor in (*model.gaussians, *model.sites))
    top = float(np.max(logs))
    cell = d * np.log(axis[1] - axis[0]) + float(np.linalg.slogdet(root)[1])
    return top + float(np.log(np.exp(logs - top).sum())) + cell


def _log_integral_on_a_line(model: LatentLinearModel, mean: Array, cov: Array) -> float:
    """log Z under one constraint in two dimensions: the integral along the line."""
    (constraint,) = model.constraints
    a = constraint.A.toarray()[0]
    along = np.array([-a[1], a[0]]) / np.linalg.norm(a)
    width = np.sqrt(along @ cov @ along)
    points = mean + width * np.linspace(-14.0, 14.0, 20001)[:, None] * along
    logs = sum(_log_factor(factor, points) for factor in (*model.gaussians, *model.sites))
    top = float(np.max(logs))
    return top + float(np.log(np.exp(logs - top).sum() * 28.0 / 20000.0 * width))


def _log_factor(factor: Any, points: Array) -> Any:
    x = points if factor.H is None else np.asarray((factor.H @ points.T).T)
    if isinstance(factor, SiteFactor):
        x = x if factor.offset is None else x + factor.offset
        if factor.extra_variance is None:
            values = factor.potential.log_density(x)
        else:
            values = factor.potential.expected_log(x, np.broadcast_to(factor.extra_variance, x.shape)).value
        return np.sum(values if factor.weight is None else factor.weight * values, axis=1)
    size = x.shape[1]
    if factor.precision is not None:
        precision = factor.precision.toarray()
    else:
        precision = np.linalg.inv(
            np.broadcast_to(factor.cov, size) * np.eye(size) if factor.cov.ndim < 2 else factor.cov
        )
    away = x - factor.mean
    constant = 0.5 * np.linalg.slogdet(precision / (2.0 * np.pi))[1]
    return constant - 0.5 * np.sum(away * (away @ precision), axis=1)


def check_evidence(case: Case, post: Any) -> None:
    """A bound is one, and what is exact is exact."""
    if post.evidence_kind not in ("lower bound", "exact") or not np.all(post.variance > 0.0):
        return
    model = case.in_memory()
    truth = log_integral(model, post.mean, post.covariance())
    allowed = SLACK * (1.0 + abs(truth)) + post.bound_error
    # a grid that misses a far mode is below log Z; a wide one shows whether it does
    if post.log_evidence > truth + allowed:
        wide = fit(replace(case, engine="ep", kind="dense")) or post
        for stretch in (1.0, 0.1, 10.0):
            truth = max(truth, log_integral(model, wide.mean, stretch * wide.covariance()))
            truth = max(truth, log_integral(model, post.mean, stretch * post.covariance()))
    assert post.log_evidence <= truth + allowed, f"bound {post.log_evidence} above log Z {truth}"
    if post.evidence_kind == "exact":
        assert abs(post.log_evidence - truth) <= 1e-3 * (1.0 + abs(truth)), f"{post.log_evidence} is not {truth}"


def check_stationary(case: Case, post: Any, rng: np.random.Generator) -> None:
    """No perturbation raises a Gaussian KL bound that has converged."""
    if case.engine not in ("gkl", "diagonal") or not post.converged or "blocks" in case.kind:
        return
    if case.prior == "constrained":  # covariances along a line have no inverse
        return
    if post.evidence_kind == "approximation":  # squares of an operator's rows were estimated
        return
    root = np.linalg.cholesky(post.covariance())
    best = post.kl_bound()
    for size in (1e-1, 1e-2):
        shift, twist = rng.standard_normal(case.dim), rng.standard_normal((case.dim, case.dim))
        twist = twist if case.engine == "gkl" else np.diag(np.diagonal(twist))
        other = root @ (np.eye(case.dim) + size * twist)
        moved_to = LatentLinearModel([GaussianFactor(post.mean + size * root @ shift, other @ other.T)])
        moved = replace(post, density=infer(moved_to, "laplace").density).kl_bound()
        assert moved <= best + 1e-7 * (1.0 + abs(best)), f"a perturbation raises the bound by {moved - best}"


def restate(case: Case, rng: np.random.Generator) -> tuple[str, Case]:
    """The same model in other words, and which."""
    order = rng.permutation(len(case.rows))
    weight, offset, extra = (None if part is None else part[order] for part in (case.weight, case.offset, case.extra))
    moved = replace(case, rows=case.rows[order], y=case.y[order], weight=weight, offset=offset, extra=extra)
    # squares of an operator's rows are estimated where a factorised covariance needs them
    kinds = ["dense", "sparse"] if case.engine in FACTORISED or "blocks" not in case.kind else list(KINDS)
    kinds = kinds if case.extra is None else ["dense", "sparse"]
    moved = replace(moved, kind=str(rng.choice(kinds)))
    words = rng.integers(3)
    # expectation propagation takes a site with a weight as one
    if words == 0 and weight is not None and not case.engine.endswith("ep"):
        twice = np.repeat(np.arange(len(order)), weight.astype(int))
        offset, extra = (None if part is None else part[twice] for part in (offset, extra))
        repeated = replace(moved, rows=moved.rows[twice], y=moved.y[twice], weight=None, offset=offset, extra=extra)
        return "repeated sites", repeated
    if words == 1 and case.prior in ("full", "diagonal", "precision") and not case.more:
        # w = shift + stretch ∘ v
        shift, stretch = rng.standard_normal(case.dim), np.exp(rng.standard_normal(case.dim))
        offset = (0.0 if offset is None else offset) + moved.rows @ shift
        mean, cov = (case.mean - shift) / stretch, case.cov / np.outer(stretch, stretch)
        return "other coordinates", replace(moved, rows=moved.rows * stretch, offset=offset, mean=mean, cov=cov)
    return "other rows", moved


def check_invariant(case: Case, post: Any, rng: np.random.Generator) -> None:
    """The same model in other words has the same posterior, where the optimum is unique."""
    # "auto" may choose differently for rows of another kind
    if case.engine in (*LOCAL, "auto") or (case.engine in FACTORISED and case.kind == "operator"):
        return
    words, other = restate(case, rng)
    again = fit(other)
    concave = all(potential.log_concave for potential in other.in_memory().potentials)
    if again is None or not (post.converged and again.converged and concave):
        return
    if np.isfinite(post.log_evidence):
        size = 1e-4 * (1.0 + abs(post.log_evidence)) + post.bound_error + again.bound_error
        same = abs(again.log_evidence - post.log_evidence) <= size
        assert same, f"{words}: {again.log_evidence} and {post.log_evidence}"


def change(case: Case, rng: np.random.Generator) -> tuple[str, Case]:
    """Another model, and what is other about it."""
    n = len(case.rows)
    at = np.arange(n) == rng.integers(n)
    other = str(rng.choice([name for name in FAMILIES if name != case.family]))
    changed = {
        "row": replace(case, rows=case.rows * np.where(at, 1.001, 1.0)[:, None]),
        "response": replace(case, y=np.where(at, -case.y - np.sign(case.y), case.y)),
        "weight": replace(case, weight=(np.ones(n) if case.weight is None else case.weight) * np.where(at, 1.5, 1.0)),
        "offset": replace(case, offset=(np.zeros(n) if case.offset is None else case.offset) + 1e-3 * at),
        "scale": replace(case, scale=1.01 * case.scale),
        "family": replace(case, family=other),
        **({} if case.extra is None else {"extra variance": replace(case, extra=case.extra + 1e-3 * at)}),
        "prior mean": replace(case, mean=case.mean + 1e-3),
        "prior scale": replace(case, cov=1.001 * case.cov),
        "factor": replace(case, more=(GaussianFactor(0.0, 100.0, dim=case.dim),)),
        "site": replace(case, more=(SiteFactor(None, potentials.Gaussian(np.zeros(case.dim), 9.0)),)),
    }
    names = [name for name, to in changed.items() if _differ(case, to)]
    name = str(rng.choice(names))
    return name, changed[name]


def _differ(case: Case, other: Case) -> bool:
    """Whether two models are not the same function; one that has no expected log is another."""
    points = np.random.default_rng(0).standard_normal((7, case.dim))
    models = [replace(c, kind="dense").in_memory() for c in (case, other)]
    try:
        first, second = (sum(_log_factor(f, points) for f in (*m.gaussians, *m.sites)) for m in models)
    except ValueError as error:
        if "no expected log" not in str(error):
            raise
        return True
    return not np.array_equal(first, second, equal_nan=True)


def check_files(case: Case, post: Any, folder: Path, rng: np.random.Generator) -> str:
    """The same numbers after loading; a checkpoint serves its own model and no other. How far this could be tried."""
    post.save(folder / "post")
    again = latlin.load(folder / "post")
    np.testing.assert_array_equal(again.mean, post.mean)
    np.testing.assert_array_equal(again.variance, post.variance)
    np.testing.assert_equal(again.log_evidence, post.log_evidence)
    for path in folder.glob("c*"):
        path.unlink()
    first = fit(case, checkpoint=folder / "c")
    if first is None or not list(folder.glob("c*")):
        return "files"
    resumed = fit(case, checkpoint=folder / "c")
    np.testing.assert_allclose(resumed.mean, first.mean, rtol=1e-6, atol=1e-9)
    name, other = change(case, rng)
    assert fit(other, checkpoint=folder / "c") is None, f"a checkpoint was taken by a model with another {name}"
    return f"checkpoint refused for another {name}"


@dataclass(frozen=True)
class Classes:
    """What a random model of several classes is made of."""

    link: str
    kind: str
    rows: Array
    label: Array
    scale: float
    weight: Array | None
    offset: Array | None

    @property
    def count(self) -> int:
        return int(self.label.max()) + 1

    def fit(self) -> Any:
        """The estimator; a refusal is none that is allowed."""
        cls = linear.BayesianSoftmaxRegression if self.link == "softmax" else linear.BayesianMultinomialProbitRegression
        model = cls(prior_scale=self.scale, fit_intercept=False, standardise=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.fit(KINDS[self.kind](self.rows), self.label, self.weight, offset=self.offset)

    def log_integral(self) -> float:
        """log p(y) by a sum over a grid in the contrasts of the classes, under N(0, scale²) as the coefficients are."""
        dim, size = self.rows.shape[1], self.rows.shape[1] * (self.count - 1)
        axis = np.linspace(-9.0, 9.0, 20001 if size == 1 else 451)
        z = np.stack(np.meshgrid(*[axis] * size, indexing="ij"), axis=-1).reshape(-1, size)
        # the columns of an orthonormal basis of the vectors that add up to zero
        contrasts = np.linalg.svd(np.ones((1, self.count)))[2][1:].T
        w = self.scale * np.einsum("sdc,kc->sdk", z.reshape(-1, dim, self.count - 1), contrasts)
        logs = -0.5 * np.sum(z**2, axis=1)
        for i, (row, label) in enumerate(zip(self.rows, self.label, strict=True)):
            f = np.einsum("d,sdk->sk", row, w) + (0.0 if self.offset is None else self.offset[i])
            logs += (1.0 if self.weight is None else self.weight[i]) * LINKS[self.link](f, int(label))
        cell = size * (np.log(axis[1] - axis[0]) - 0.5 * np.log(2.0 * np.pi))
        return float(logsumexp(logs) + cell)


def _log_softmax(f: Array, label: int) -> Array:
    return np.asarray(f[:, label] - logsumexp(f, axis=1))


def _log_multinomial_probit(f: Array, label: int) -> Array:
    """log ∫ N(e | 0, 1) Π_k Φ(f_y − f_k + e) de."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    others = np.delete(np.arange(f.shape[1]), label)
    terms = [
        np.log(weight) + np.sum(log_ndtr(f[:, [label]] - f[:, others] + node), axis=1)
        for node, weight in zip(nodes, weights, strict=True)
    ]
    return np.asarray(logsumexp(terms, axis=0) - 0.5 * np.log(2.0 * np.pi))


LINKS: dict[str, Callable[[Array, int], Array]] = {
    "softmax": _log_softmax,
    "multinomial probit": _log_multinomial_probit,
}


def draw_classes(seed: int) -> Classes:
    """A random case of several classes."""
    rng = np.random.default_rng([seed, 2])
    dim, count = ((1, 2), (2, 2), (1, 3))[rng.integers(3)]
    n = int(rng.integers(count, 7))
    return Classes(
        str(rng.choice(list(LINKS))),
        str(rng.choice(["dense", "sparse"])),
        10.0 ** rng.uniform(-1, 0.5) * rng.standard_normal((n, dim)),
        rng.permutation(np.arange(n) % count),
        10.0 ** rng.uniform(-1, 0.5),
        rng.integers(1, 3, n).astype(float) if rng.random() < 0.3 else None,
        rng.standard_normal((n, count)) if rng.random() < 0.3 else None,
    )


def check_classes(seed: int, folder: Path) -> list[str]:
    """One model of several classes; how it went."""
    case, rng = draw_classes(seed), np.random.default_rng([seed, 1])
    model = case.fit()
    bound, truth = model.log_evidence_, case.log_integral()
    assert bound <= truth + SLACK * (1.0 + abs(truth)), f"bound {bound} above log Z {truth}"
    order = rng.permutation(len(case.label))
    weight, offset = (None if part is None else part[order] for part in (case.weight, case.offset))
    # the classes in reverse
    again = replace(
        case,
        kind="dense",
        rows=case.rows[order],
        label=case.count - 1 - case.label[order],
        weight=weight,
        offset=None if offset is None else offset[:, ::-1],
    ).fit()
    converged = all(post.converged for post in (*model.posterior_, *again.posterior_))
    if converged:
        same = abs(again.log_evidence_ - bound) <= 1e-4 * (1.0 + abs(bound))
        assert same, f"other rows and labels: {again.log_evidence_} and {bound}"
    model.save(folder / "classes")
    share = model.predict_proba(case.rows)
    assert np.all(np.isfinite(share)), "a probability is not finite"
    np.testing.assert_array_equal(latlin.load(folder / "classes").predict_proba(case.rows), share)
    return ["converged" if converged else "not converged", "evidence: lower bound", "several classes"]


def check(seed: int, folder: Path) -> list[str]:
    """One model; how it went."""
    if seed % 20 == 19:
        return check_classes(seed, folder)
    case, rng = draw(seed), np.random.default_rng([seed, 1])
    post = fit(case)
    if post is None:
        return ["refused"]
    assert np.all(np.isfinite(post.mean)), "the mean is not finite"
    check_evidence(case, post)
    check_stationary(case, post, rng)
    check_invariant(case, post, rng)
    went = ["converged" if post.converged else "not converged", f"evidence: {post.evidence_kind}"]
    return [*went, check_files(case, post, folder, rng)] if seed % 4 == 0 else went


def describe(seed: int) -> str:
    """The kind of a random model."""
    if seed % 20 == 19:
        classes = draw_classes(seed)
        return f"{classes.count} classes by {classes.link}, {classes.kind}"
    case = draw(seed)
    return f"{case.family} by {case.engine}, {case.kind}, {case.prior}"


def search(count: int, first: int = 0) -> tuple[Counter[str], list[str]]:
    """So many models from a seed on: how they went, and what was false."""
    found: Counter[str] = Counter()
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            try:
                found.update(check(seed, Path(folder)))
            except Exception as error:
                text = " ".join(f"{type(error).__name__}: {error}".split())
                failures.append(f"seed {seed}, {describe(seed)}: {text}"[:300])
    return found, failures


def main(arguments: list[str]) -> int:
    count, first = (int(arguments[0]) if arguments else 100), (int(arguments[1]) if len(arguments) > 1 else 0)
    started = time.perf_counter()
    found, failures = search(count, first)
    print("\n".join(failures))
    print(f"{count} models from seed {first}: {dict(sorted(found.items()))}")
    print(f"{len(failures)} failures, {time.perf_counter() - started:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
