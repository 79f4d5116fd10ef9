"""Streams: assumed-density filtering, one block of rows after the other.

The posterior so far is the prior of the next block, on which expectation propagation runs; with blocks of one row this
is assumed-density filtering proper (Challis (2013), §3.6). Log evidences of the blocks add up.

What a stream has seen is a Gaussian function of the weights, t(w) = Z q(w)/p(w) ∝ exp(−½wᵀBw + bᵀw). Under another
prior p′ its evidence is ∫ p′(w) t(w) dw, in closed form; and where the noise is Gaussian, another noise scale σ′ raises
t to the power (σ/σ′)². So scales that are "auto" are learnt on as rows come, without looking back at any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from latlin.hyper.learn import maximise
from latlin.hyper.space import Evaluation
from latlin.inference.ep.engine import ExpectationPropagation
from latlin.inference.model import GaussianFactor
from latlin.inference.posterior import EvidenceKind, Posterior
from latlin.linear._fitting import fit_problem, settle_hyperparameters
from latlin.linear._learning import ARGUMENTS, Learning, LearntFit, Unknowns
from latlin.linear._problem import (
    CoefficientPrior,
    Design,
    GaussianPrior,
    LinearProblem,
    Targets,
    check_offsets,
    check_weights,
)
from latlin.linear._rows import check_classes, class_index, encode_rows
from latlin.numerics.arrays import LOG_SQRT_2PI, Array, check_sortable

#: rows a first block must have when hyperparameters are to be learnt from it
FIRST_ROWS = 10
#: hyperparameters are learnt again whenever there are so many times the rows of the last time
GROWTH = 1.5


class SeenRows(NamedTuple):
    """log t(w) = −½wᵀBw + bᵀw + c: what the rows so far say about the weights."""

    precision: Array  # B
    linear: Array  # b
    constant: float  # c
    rows: float  # Σ of the weights of the rows
    noise: float | None  # σ, where the noise is Gaussian

    @classmethod
    def of(cls, posterior: Posterior, prior: GaussianFactor, rows: float, noise: float | None) -> SeenRows:
        """t = Z q/p from the posterior under a prior of independent weights."""
        inverse: Array = np.asarray(np.linalg.inv(posterior.covariance()), dtype=np.float64)
        own = 1.0 / np.broadcast_to(prior.cov, posterior.mean.shape)
        linear, start = inverse @ posterior.mean, own * prior.mean
        # log q(0) − log p(0)
        at_zero = 0.5 * (np.linalg.slogdet(inverse)[1] - np.log(own).sum())
        at_zero -= 0.5 * float(posterior.mean @ linear - prior.mean @ start)
        return cls(inverse - np.diag(own), linear - start, posterior.log_evidence + at_zero, rows, noise)

    def with_noise(self, noise: float | None) -> SeenRows:
        """The same rows with another standard deviation of Gaussian noise."""
        if self.noise is None or noise is None:
            return self
        # log t = −(n/2) log 2πσ² + (…)/σ²
        power = (self.noise / noise) ** 2
        constant = power * self._without_noise() - self.rows * (np.log(noise) + LOG_SQRT_2PI)
        return SeenRows(power * self.precision, power * self.linear, constant, self.rows, noise)

    def _without_noise(self) -> float:
        """c without the normaliser of Gaussian noise."""
        assert self.noise is not None
        return self.constant + self.rows * (float(np.log(self.noise)) + LOG_SQRT_2PI)

    def under(self, prior: GaussianFactor) -> tuple[float, Array, Array]:
        """log ∫ p t, and the mean and the covariance of p t / ∫ p t."""
        own = 1.0 / np.broadcast_to(prior.cov, self.linear.shape)
        whole, linear = self.precision + np.diag(own), self.linear + own * prior.mean
        covariance = np.linalg.inv(whole)
        mean = covariance @ linear
        log_z = self.constant + 0.5 * (np.log(own).sum() - np.linalg.slogdet(whole)[1])
        log_z += 0.5 * float(linear @ mean - prior.mean @ (own * prior.mean))
        return float(log_z), mean, 0.5 * (covariance + covariance.T)

    def noise_slope(self, mean: Array, covariance: Array) -> float:
        """∂ log Z / ∂σ = −n/σ − 2⟨log t without the normaliser⟩/σ."""
        assert self.noise is not None
        square = float(np.vdot(self.precision, covariance) + mean @ self.precision @ mean)
        expected = -0.5 * square + float(self.linear @ mean) + self._without_noise()
        return -(self.rows + 2.0 * expected) / self.noise


@dataclass
class Course:
    """How far a stream has come, and what learns its scales on: the first block's prior and unknowns."""

    prior: CoefficientPrior
    design: Design
    intercept: tuple[float, float]
    gaussian: bool  # the noise
    free: tuple[str, ...]
    unknowns: Unknowns
    rows: float
    learnt_at: float

    def factor(self, values: Mapping[str, Any]) -> GaussianFactor:
        found = self.prior.factor(self.design, self.intercept, values)
        assert isinstance(found, GaussianFactor)
        return found

    def seen(self, fit: LearntFit, rows: float) -> SeenRows:
        """What the rows of a fit say."""
        noise = float(fit.values["scale"]) if self.gaussian else None
        return SeenRows.of(fit.posterior, self.factor(fit.values), rows, noise)

    def relearn(self, fit: LearntFit, rows: float) -> dict[str, Any]:
        """The hyperparameters that maximise log evidence + log prior of all rows so far."""
        data = self.seen(fit, rows)

        def evaluate(numbers: dict[str, float], before: Any, slopes: bool) -> Evaluation:
            values = self.unknowns.assembled(numbers)
            now, prior = data.with_noise(values.get("scale")), self.factor(values)
            log_z, mean, covariance = now.under(prior)
            # ∂ log Z/∂ log s_j = (⟨(w_j − μ_j)²⟩/v_j − 1)
            square = (np.diagonal(covariance) + (mean - prior.mean) ** 2) / np.broadcast_to(prior.cov, mean.shape)
            found: dict[str, Any] = {"prior_scale": (square - 1.0)[: self.design.n_features] / values["prior_scale"]}
            if now.noise is not None:
                found["scale"] = now.noise_slope(mean, covariance)
            return Evaluation(log_z, self.unknowns.slopes(found), None)

        self.unknowns = self.unknowns.starting_at(fit.values)
        learnt = maximise(self.unknowns.space, evaluate, gradient=1e-5, gain=1e-9, curvature=False)
        return self.unknowns.assembled(learnt.values)


@dataclass(frozen=True)
class _Carried:
    """The posterior so far in the place of the prior."""

    mean: Array
    covariance: Array
    parameters: tuple[str, ...] = ()

    def first(self) -> dict[str, Any]:
        return {}

    def ranges(self, unit: float) -> dict[str, Any]:
        return {}

    def factor(self, design: Any, intercept: Any, values: Any) -> GaussianFactor:
        return GaussianFactor(self.mean, self.covariance)

    def gradient(self, design: Any, values: Any, slopes: Any) -> dict[str, Any]:
        raise NotImplementedError("a stream learns no hyperparameters")


def absorb(problem: LinearProblem, before: LearntFit, course: Course | None) -> LearntFit:
    """The posterior after one more block, its scales learnt on where a course is known and rows have grown enough."""
    carried = (before.posterior.log_evidence, before.posterior.mean, before.posterior.covariance())
    after = _absorbed_block(problem, before, before.values, carried)
    if course is None:
        return after
    rows = course.rows + _total_weight(problem)
    if rows >= GROWTH * course.learnt_at:
        values = course.relearn(after, rows)
        seen = course.seen(before, course.rows).with_noise(values.get("scale"))
        after = _absorbed_block(problem, before, values, seen.under(course.factor(values)))
        course.learnt_at = rows
    course.rows = rows
    return after


def _absorbed_block(
    problem: LinearProblem, before: LearntFit, values: dict[str, Any], carried: tuple[float, Array, Array]
) -> LearntFit:
    """Expectation propagation on a block, the log evidence, mean and covariance so far in the place of the prior."""
    so_far, mean, covariance = carried
    after = ExpectationPropagation().run(replace(problem, prior=_Carried(mean, covariance)).model(values))
    kind: EvidenceKind = (
        "exact" if before.posterior.evidence_kind == after.evidence_kind == "exact" else "approximation"
    )
    message = f"stream: {after.message}"
    after = replace(after, log_evidence=so_far + after.log_evidence, evidence_kind=kind, message=message)
    return LearntFit(after, values, before.n_fits)


def _total_weight(problem: LinearProblem) -> float:
    weight = problem.targets.weight if isinstance(problem.targets, Targets) else None
    return float(problem.observed.n_rows) if weight is None else float(weight.sum())


class _Stream:
    """What both kinds of stream share; mixed into a `LinearEstimator`."""

    def _absorbed(self: Any, X: Any, codes: list[Array], weight: Array | None, offset: Array | None) -> Any:
        first = not hasattr(self, "_fits")
        if first:
            problems = self._problems(X, codes, weight, offset)
            begun = [self._begin(problem) for problem in problems]
            fits, self._courses = [fit for fit, _ in begun], [course for _, course in begun]
        else:
            problems = self._on_design(self._design, *self._kept(X, codes, weight, offset))
            courses = getattr(self, "_courses", None) or [None] * len(problems)
            fits = [absorb(*arguments) for arguments in zip(problems, self._fits, courses, strict=True)]
        for name in (*self._extras, "checks_", "_kept_look"):  # they belong to the rows of `fit`
            vars(self).pop(name, None)
        return self._store(problems[0].design, fits, X.dtype if first else self._dtype)

    def _block(self: Any, X: Any, first: bool) -> Any:
        """Rows as numbers; the first block says how the columns of a data frame become numbers."""
        return self._read(X, {})["X"] if first else encode_rows(X, getattr(self, "encoding_", None))

    def _begin(self: Any, problem: LinearProblem) -> tuple[LearntFit, Course | None]:
        """The fit of a first block, and the course of a stream that learns scales."""
        values, free = self._first_values(problem)
        fit = LearntFit(ExpectationPropagation().run(problem.model(values)), values)
        gaussian = problem.has_gaussian_noise
        free = [name for name in free if name == "prior_scale" or (name == "scale" and gaussian)]
        if not free or not isinstance(problem.prior, GaussianPrior):
            return fit, None
        unknowns = Unknowns(problem, values, free, self._wish().priors)
        rows = _total_weight(problem)
        prior, design, intercept = problem.prior, problem.design, problem.intercept
        return fit, Course(prior, design, intercept, gaussian, tuple(free), unknowns, rows, rows)

    def _first_values(self: Any, problem: LinearProblem) -> tuple[dict[str, Any], list[str]]:
        """Hyperparameters of a stream: those given, the others learnt from the first block; and the names of these."""
        values, free = settle_hyperparameters(problem, self._requested(), self.ard)
        rows = problem.observed.n_rows
        if free and rows < FIRST_ROWS:
            names = ", ".join(f"{ARGUMENTS.get(name, name)}='auto'" for name in free)
            raise ValueError(
                f"{names} is learnt from the first block of a stream, which needs at least {FIRST_ROWS} rows, "
                f"got {rows}: start with more rows, or give numbers"
            )
        if not free or self._wish().manner == "fixed":
            return values, []
        # what a stream carries on is one set of hyperparameters
        wish = Learning("maximise", self._wish().priors)
        return fit_problem(problem, self.engine, values, free, wish=wish).values, free


class Streaming(_Stream):
    """`partial_fit` of a numeric response."""

    def partial_fit(self: Any, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> Any:
        """Learn from one more block of rows, by assumed-density filtering.

        The first block sets the standardisation and, where they are "auto", the hyperparameters. The prior scale, and
        the scale of Gaussian noise, are learnt again whenever there are half as many rows more. A fitted or loaded
        model goes on from its posterior and keeps its hyperparameters. A block of any size costs O(rows · D²);
        `engine` is not used.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, n_features)
        y : array of shape (n,)
        sample_weight, offset : array of shape (n,), optional
        """
        first = not hasattr(self, "_fits")
        X, y = self._training(self._block(X, first), y, reset=first, y_numeric=True)
        weight, shift = check_weights(sample_weight, X.shape[0]), check_offsets(offset, X.shape[0])
        return self._absorbed(X, [np.asarray(y, float)], weight, shift)


class StreamingClasses(_Stream):
    """`partial_fit` of class labels."""

    def partial_fit(
        self: Any, X: Any, y: Any, classes: Sequence[Any] | None = None, sample_weight: Any = None, offset: Any = None
    ) -> Any:
        """Learn from one more block of rows, by assumed-density filtering.

        The first block sets the standardisation and, where they are "auto", the hyperparameters. The prior scale, and
        the scale of Gaussian noise, are learnt again whenever there are half as many rows more. A fitted or loaded
        model goes on from its posterior and keeps its hyperparameters. A block of any size costs O(rows · D²);
        `engine` is not used.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, n_features)
        y : array of shape (n,)
        classes : sequence, optional
            All labels that will ever come; needed with the first block unless that has them all.
        sample_weight : array of shape (n,), optional
        offset : array of shape (n,) or (n, n_classes), optional
        """
        first = not hasattr(self, "_fits")
        X, y = self._training(self._block(X, first), check_sortable("y", y), reset=first)
        check_classification_targets(y)
        weight = check_weights(sample_weight, X.shape[0])
        labels = np.unique(y if classes is None else classes)
        if first:
            self.classes_ = check_classes(labels)
        elif classes is not None and not np.array_equal(labels, self.classes_):
            raise ValueError(
                f"classes {labels.tolist()} differ from those of the first block, {self.classes_.tolist()}"
            )
        class_index(np.asarray(y), self.classes_)
        codes = self._codes(y)
        return self._absorbed(X, codes, weight, check_offsets(offset, X.shape[0], len(codes)))
