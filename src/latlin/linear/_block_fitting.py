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
from latlin.linear._evidence import PLAIN, Fit, maximise_evidence
from latlin.linear._exact import maximise_exact_evidence
from latlin.linear._fitting import FINE, FINER, SMALL, asked_engine
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
) -> Fit:
    """The posterior, at the hyperparameters of largest evidence where some are free."""
    small = problem.table.n_rows * problem.design.dim <= SMALL
    asked, reason = asked_engine(engine, free, small), ""
    if isinstance(asked, Auto):
        if _in_closed_form(problem, values, free):
            return _exact(problem, values, free)
        asked, reason = choose_for_blocks(problem.model(values))
        asked = FINER["gkl"] if small and asked.covariance == "full" else asked
    if free:
        accuracy = FINE if small else PLAIN
        fit = maximise_evidence(problem, OnBlocks(asked), values, free, start, accuracy, checkpoint, verbose)
    else:
        model = problem.model(values)
        fit = Fit(infer_blocks(model, asked, start=start, verbose=verbose, checkpoint=checkpoint), dict(values))
    said = f"auto: {reason}; {fit.posterior.message}" if reason else fit.posterior.message
    return fit._replace(posterior=replace(fit.posterior, message=said))


def _in_closed_form(problem: BlockProblem, values: Mapping[str, Any], free: Sequence[str]) -> bool:
    """Gaussian prior and noise, and at most two hyperparameters to learn."""
    many = "prior_scale" in free and np.ndim(values["prior_scale"]) > 0
    gaussian = type(problem.family.template) is Gaussian and isinstance(problem.prior, GaussianPrior)
    return gaussian and not many and problem.design.dim <= FULL


def _exact(problem: BlockProblem, values: Mapping[str, Any], free: Sequence[str]) -> Fit:
    data = sufficient(problem, values)
    found = dict(values)
    if free:
        found = maximise_exact_evidence(problem, partial(block_spectrum, problem, data), values, free)
    return Fit(exact_posterior(problem, data, found), found)


def numbered(checkpoint: Path | None, index: int, count: int) -> Path | None:
    """The file of one of several fits."""
    return checkpoint if checkpoint is None or count == 1 else f"{os.fspath(checkpoint)}.{index}"
