"""Likelihood parameters by the log probability of held-out rows, Challis (2013), §5.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from latlin.gp.latent import Process
from latlin.gp.learning import Search
from latlin.gp.search import maximise_evidence
from latlin.gp.setting import Likelihood, Setting
from latlin.numerics.arrays import Array


def choose_on_validation(
    setting: Setting,
    X: Array,
    y: Array,
    grid: Mapping[str, Sequence[float]],
    fraction: float,
    search: Search,
    rng: np.random.Generator,
    verbose: bool,
) -> Setting:
    """The setting whose likelihood parameters, held while the kernel is fitted, predict held-out rows best."""
    if not 0.0 < fraction < 1.0:
        raise ValueError(f"validation_fraction must lie in (0, 1), got {fraction!r}")
    order = rng.permutation(len(y))
    held = max(round(fraction * len(y)), 1)
    if held >= len(y):
        raise ValueError(f"validation_fraction {fraction!r} leaves no rows to fit of {len(y)}")
    test, train = order[:held], order[held:]
    return best_setting(candidates(setting, grid), (X[train], y[train]), (X[test], y[test]), search, rng, verbose)


def candidates(setting: Setting, grid: Mapping[str, Sequence[float]]) -> list[Setting]:
    """The setting at every combination of the grid's likelihood parameters, which are then fixed."""
    if not isinstance(grid, Mapping) or not grid:
        raise ValueError(f"validation_grid must be a dict of values to choose from, got {grid!r:.80}")
    template = setting.likelihood.template
    unknown = set(grid) - set(setting.likelihood.values)
    if unknown:
        raise ValueError(f"validation_grid names {sorted(unknown)}, but the likelihood has {template.parameters}")
    ranges = dict(setting.likelihood.ranges)
    kept = [name for name in template.free if name not in ranges]
    settings = []
    for values in product(*grid.values()):
        given = dict(zip(grid, values, strict=True))
        likelihood = Likelihood.of(template.replace(**given), [*kept, *grid], ranges)
        settings.append(replace(setting, likelihood=likelihood))
    return settings


def best_setting(
    settings: Sequence[Setting],
    train: tuple[Array, Array],
    test: tuple[Array, Array],
    search: Search,
    rng: np.random.Generator,
    verbose: bool,
) -> Setting:
    """The candidate of largest held-out log probability, with the kernel fitted to it; failures are skipped."""
    best, best_score = None, -np.inf
    for setting in settings:
        try:
            fitter = search.approximation.prepare(setting, *train, search.engine, rng)
            found = maximise_evidence(
                setting, fitter, search.optimizer, search.n_restarts, search.max_iter, rng, verbose
            )
        except ValueError:
            continue
        score = float(Process(fitter, found).predictive(test[0]).log_density(test[1]).sum())
        if score > best_score:
            best, best_score = found.setting, score
    if best is None:
        raise ValueError("no likelihood parameters of validation_grid could be fitted")
    return best
