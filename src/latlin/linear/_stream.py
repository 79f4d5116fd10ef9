"""Streams: assumed-density filtering, one block of rows after the other.

The posterior so far is the prior of the next block, on which expectation propagation runs; with blocks of one row this
is assumed-density filtering proper (Challis (2013), §3.6). Log evidences of the blocks add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from latlin.inference.ep.engine import ExpectationPropagation
from latlin.inference.model import GaussianFactor
from latlin.inference.posterior import EvidenceKind, Posterior
from latlin.linear import _checks
from latlin.linear._checks import at_least_two, class_index
from latlin.linear._fitting import ARGUMENTS, fit_problem, settled
from latlin.linear._learning import Learning, LearntFit
from latlin.linear._problem import LinearProblem
from latlin.linear._tables import encoded
from latlin.numerics.arrays import Array

#: rows a first block must have when hyperparameters are to be learnt from it
FIRST_ROWS = 10


@dataclass(frozen=True)
class _Carried:
    """The posterior so far in the place of the prior."""

    posterior: Posterior
    parameters: tuple[str, ...] = ()

    def first(self) -> dict[str, Any]:
        return {}

    def ranges(self) -> dict[str, Any]:
        return {}

    def factor(self, design: Any, intercept: Any, values: Any) -> GaussianFactor:
        return GaussianFactor(self.posterior.mean, self.posterior.covariance())

    def gradient(self, design: Any, values: Any, slopes: Any) -> dict[str, Any]:
        raise NotImplementedError("a stream learns no hyperparameters")


def absorb(problem: LinearProblem, before: LearntFit | None, values: dict[str, Any]) -> LearntFit:
    """The posterior after one more block."""
    engine = ExpectationPropagation()
    if before is None:
        return LearntFit(engine.run(problem.model(values)), values)
    model = replace(problem, prior=_Carried(before.posterior)).model(before.values)
    after = engine.run(model)
    evidence = before.posterior.log_evidence + after.log_evidence
    kind: EvidenceKind = (
        "exact" if before.posterior.evidence_kind == after.evidence_kind == "exact" else "approximation"
    )
    message = f"stream: {after.message}"
    after = replace(after, log_evidence=evidence, evidence_kind=kind, message=message)
    return LearntFit(after, before.values, before.n_fits)


class _Stream:
    """What both kinds of stream share; mixed into a `LinearEstimator`."""

    def _absorbed(self: Any, X: Any, codes: list[Array], weight: Array | None, offset: Array | None) -> Any:
        first = not hasattr(self, "_fits")
        if first:
            problems = self._problems(X, codes, weight, offset)
            before = [None] * len(problems)
            values = [self._first_values(problem) for problem in problems]
        else:
            problems = self._on_design(self._design, *self._kept(X, codes, weight, offset))
            before, values = self._fits, [fit.values for fit in self._fits]
        for name in (*self._extras, "checks_", "_kept_look"):  # they belong to the rows of `fit`
            vars(self).pop(name, None)
        fits = [absorb(*arguments) for arguments in zip(problems, before, values, strict=True)]
        return self._store(problems[0].design, fits, X.dtype if first else self._dtype)

    def _block(self: Any, X: Any, first: bool) -> Any:
        """Rows as numbers; the first block says how the columns of a data frame become numbers."""
        return self._read(X, {})["X"] if first else encoded(X, getattr(self, "encoding_", None))

    def _first_values(self: Any, problem: LinearProblem) -> dict[str, Any]:
        """Hyperparameters of a stream: those given, the others learnt from the first block."""
        values, free = settled(problem, self._given(), self.ard)
        rows = problem.observed.n_rows
        if free and rows < FIRST_ROWS:
            names = ", ".join(f"{ARGUMENTS.get(name, name)}='auto'" for name in free)
            raise ValueError(
                f"{names} is learnt from the first block of a stream, which needs at least {FIRST_ROWS} rows, "
                f"got {rows}: start with more rows, or give numbers"
            )
        if not free or self._wish().manner == "fixed":
            return values
        # what a stream carries on is one set of hyperparameters
        wish = Learning("maximise", self._wish().priors)
        return fit_problem(problem, self.engine, values, free, wish=wish).values


class Streaming(_Stream):
    """`partial_fit` of a numeric response."""

    def partial_fit(self: Any, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> Any:
        """Learn from one more block of rows, by assumed-density filtering.

        The first block sets the standardisation and, where they are "auto", the hyperparameters; a fitted model goes on
        from its posterior. A block of any size costs O(rows · D²); `engine` is not used.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, n_features)
        y : array of shape (n,)
        sample_weight, offset : array of shape (n,), optional
        """
        first = not hasattr(self, "_fits")
        X, y = self._training(self._block(X, first), y, reset=first, y_numeric=True)
        weight, shift = _checks.weights(sample_weight, X.shape[0]), _checks.offsets(offset, X.shape[0])
        return self._absorbed(X, [np.asarray(y, float)], weight, shift)


class StreamingClasses(_Stream):
    """`partial_fit` of class labels."""

    def partial_fit(
        self: Any, X: Any, y: Any, classes: Sequence[Any] | None = None, sample_weight: Any = None, offset: Any = None
    ) -> Any:
        """Learn from one more block of rows, by assumed-density filtering.

        The first block sets the standardisation and, where they are "auto", the hyperparameters; a fitted model goes on
        from its posterior. A block of any size costs O(rows · D²); `engine` is not used.

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
        X, y = self._training(self._block(X, first), y, reset=first)
        check_classification_targets(y)
        weight = _checks.weights(sample_weight, X.shape[0])
        labels = np.unique(y if classes is None else classes)
        if first:
            self.classes_ = at_least_two(labels)
        elif classes is not None and not np.array_equal(labels, self.classes_):
            raise ValueError(
                f"classes {labels.tolist()} differ from those of the first block, {self.classes_.tolist()}"
            )
        class_index(np.asarray(y), self.classes_)
        codes = self._codes(y)
        return self._absorbed(X, codes, weight, _checks.offsets(offset, X.shape[0], len(codes)))
