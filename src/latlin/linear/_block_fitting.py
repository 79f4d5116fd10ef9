"""Fit linear models to blocks of rows: the table of the first pass, one problem a response, the engine, the fit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from latlin.inference.auto import FULL, Auto
from latlin.inference.block_infer import OnBlocks, choose_for_blocks, infer_blocks
from latlin.inference.engine import Engine
from latlin.inference.posterior import Posterior
from latlin.linear._block_exact import block_spectrum, exact_posterior, sufficient
from latlin.linear._block_problem import BlockProblem
from latlin.linear._block_table import Table
from latlin.linear._design import Design, standardised
from latlin.linear._evidence import Fit
from latlin.linear._exact_engine import Exact
from latlin.linear._fitting import FINER, SMALL, asked_engine, task_for
from latlin.linear._learning import Learning, fixed_table, learn, learn_exactly
from latlin.linear._priors import GaussianPrior
from latlin.potentials.gaussian import Gaussian

Path = str | os.PathLike[str]


def block_design(table: Table, *, standardise: bool, intercept: bool, absorbed: bool) -> Design:
    """The design for the features of a table."""
    n_features = len(table.features.mean)
    if not standardise:
        return Design(np.zeros(n_features), np.ones(n_features), intercept)
    moments = table.features
    return standardised(moments.mean, moments.variance, intercept=intercept, centred=absorbed and not table.sparse)


def fit_block_problem(
    problem: BlockProblem,
    engine: str | Engine,
    values: Mapping[str, Any],
    free: Sequence[str],
    start: Posterior | None = None,
    verbose: bool = False,
    checkpoint: Path | None = None,
    wish: Learning = Learning(),  # noqa: B008
) -> Fit:
    """The posterior, its free hyperparameters maximised or integrated."""
    small = problem.table.n_rows * problem.design.dim <= SMALL
    asked, reason = asked_engine(engine, free, small), ""
    if isinstance(asked, Auto):
        if _in_closed_form(problem, values, free):
            return _exact(problem, values, free, wish, small, verbose)
        asked, reason = choose_for_blocks(problem.model(values))
        asked = FINER["gkl"] if small and asked.covariance == "full" else asked
    if free:
        task = task_for(wish, asked, small, problem.design.dim, verbose)
        fit = learn(problem, OnBlocks(asked), values, free, task, start, checkpoint)
    else:
        model = problem.model(values)
        posterior = infer_blocks(model, asked, start=start, verbose=verbose, checkpoint=checkpoint)
        fit = Fit(posterior, dict(values), table=fixed_table(values))
    said = f"auto: {reason}; {fit.posterior.message}" if reason else fit.posterior.message
    return fit._replace(posterior=replace(fit.posterior, message=said))


def _in_closed_form(problem: BlockProblem, values: Mapping[str, Any], free: Sequence[str]) -> bool:
    """Gaussian prior and noise, and at most two hyperparameters to learn."""
    many = "prior_scale" in free and np.ndim(values["prior_scale"]) > 0
    gaussian = type(problem.family.template) is Gaussian and isinstance(problem.prior, GaussianPrior)
    return gaussian and not many and problem.design.dim <= FULL


def _exact(
    problem: BlockProblem, values: Mapping[str, Any], free: Sequence[str], wish: Learning, small: bool, verbose: bool
) -> Fit:
    data = sufficient(problem, values)
    posterior_at = partial(exact_posterior, problem, data)
    if not free:
        return Fit(posterior_at(values), dict(values), table=fixed_table(values))
    task = task_for(wish, Exact(), small, problem.design.dim, verbose)
    return learn_exactly(problem, partial(block_spectrum, problem, data), posterior_at, values, free, task)


def numbered(checkpoint: Path | None, index: int, count: int) -> Path | None:
    """The file of one of several fits."""
    return checkpoint if checkpoint is None or count == 1 else f"{os.fspath(checkpoint)}.{index}"
