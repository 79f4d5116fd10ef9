"""What a fit shows of an additive model: how counts vary, what residuals leave, groups of few rows, ends of ranges."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from latlin.additive.blocks import BlockProblem
from latlin.additive.misfits import MOST_ROWS, find_misfits
from latlin.additive.notes import UNIDENTIFIED, check_columns, check_groups
from latlin.additive.problem import AdditiveProblem
from latlin.additive.term import Values
from latlin.diagnostics.model_checks import Check, ModelChecks
from latlin.hyper.marginals import HyperparameterTable
from latlin.inference.diagnosis.dispersion import dispersion_about
from latlin.inference.posterior import Posterior
from latlin.numerics.alerts import MisfitWarning, alert

#: hyperparameters named at most
NAMED = 6


class CheckedFit:
    """The checks of a fitted model of a formula."""

    hyperparameters_: HyperparameterTable
    _components: Any
    _fits: Any
    _frame: Any

    @cached_property
    def checks_(self) -> ModelChecks:
        """What the rows of the fit show of the model, looked for when it is first asked for.

        A model from a file has no rows: it knows what was found of its family and of its hyperparameters.
        """
        if not hasattr(self, "hyperparameters_"):
            raise AttributeError(f"this {type(self).__name__} has no checks: they belong to the rows of `fit`")
        problem, found = getattr(self, "_problem_", None), list(getattr(self, "family_checks_", ()))
        if problem is not None and not isinstance(problem, BlockProblem):
            place = self._likeliest()
            found += find_misfits(problem, self._fits[place], self._components[place].values)
            found += [*check_groups(problem, learnt_of(self.hyperparameters_)), *check_columns(problem, self._frame)]
        return ModelChecks((*found, *check_ranges(self.hyperparameters_)))

    def _likeliest(self) -> int:
        """The place of the hyperparameters with the largest share."""
        return int(np.argmax([component.share for component in self._components]))

    def _look_back(self, problem: AdditiveProblem, posterior: Posterior) -> None:
        """What a fit says at once: how observations vary, and groups that cannot be told from the noise."""
        self.__dict__.pop("checks_", None)
        values = self._components[self._likeliest()].values
        self.dispersion_, self.finding_, self.family_checks_ = look_at_counts(problem, posterior, values)
        if self.finding_:
            alert(self.finding_, MisfitWarning)
        if not isinstance(problem, BlockProblem):
            for check in check_groups(problem, learnt_of(self.hyperparameters_)):
                if check.name == UNIDENTIFIED:
                    alert(f"{check.sentence}: {check.remedy[0].lower()}{check.remedy[1:]}", MisfitWarning)


def look_at_counts(
    problem: AdditiveProblem, posterior: Posterior, values: Values
) -> tuple[float, str, tuple[Check, ...]]:
    """How observations vary, where their family leaves that no freedom: Pearson's ratio, a finding, and a check.

    Of many rows, evenly spaced ones are looked at; of rows in blocks those of the sample.
    """
    family, observed = problem.family, problem.observed
    wider, one_trial = family.declared.wider, family.binary and observed.trials is None
    if not wider or one_trial:
        return np.nan, "", ()
    seen = len(observed.y)
    rows = np.arange(0, seen, max(1, seen // MOST_ROWS))
    at = posterior.project(problem.design[rows])
    weight = np.ones(len(rows)) if observed.weight is None else observed.weight[rows]
    sites = family.potential(observed, values).select(rows)
    found = dispersion_about(sites, at.mean + problem.offset[rows], at.variance, weight)
    return found.ratio, found.words(wider), (found.check(wider),)


def learnt_of(table: HyperparameterTable) -> set[str]:
    """Names of the hyperparameters that were not given."""
    return set() if table.manner == "fixed" else {str(row["name"]) for row in table.rows}


def check_ranges(table: HyperparameterTable) -> list[Check]:
    """Whether a hyperparameter stopped at the end of its range."""
    rows = list(getattr(table, "rows", ()))
    if not rows:
        return []
    stuck = [row["name"] for row in rows if row.get("at_bound")]
    if not stuck:
        return [Check("hyperparameters", True, "no hyperparameter is at the end of its range")]
    shown = ", ".join(stuck[:NAMED]) + (f" and {len(stuck) - NAMED} more" if len(stuck) > NAMED else "")
    remedy = "Give it a prior (priors={…}), or leave out the term that it belongs to"
    return [Check("hyperparameters", False, f"{shown} ended at the end of its range", remedy)]
