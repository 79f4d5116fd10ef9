"""The page: one HTML file with everything in it, no network, no script."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latlin.numerics.atomic import write_text
from latlin.report import additive, additive_page, clusters, processes
from latlin.report.assess import assess
from latlin.report.effect_curves import effect_curves
from latlin.report.facts import Facts, gather
from latlin.report.sections import render


def write_report(
    path: str | os.PathLike[str], estimator: Any, X: Any = None, y: Any = None, *, folds: int = 5, **options: Any
) -> Facts | None:
    """Write the report of a fitted estimator.

    Parameters
    ----------
    path : path
        An HTML file; it is written all or nothing.
    estimator : fitted estimator
        Of `latlin.linear`, `latlin.additive`, `latlin.gp`, `latlin.mixture` or `latlin.factor`.
    X, y : arrays or data frames
        The training data; of an additive model X is the table or nothing, and a mixture or a factor model has no y.
    folds : int
        Of regressions and classifications, for which clones are fitted to folds of the rows; 0 leaves that out.
    **options
        `title`; for regressions and classifications also target, columns, notes, spread, diagnosis and engines, as of
        `gather`; for a process `target`.

    Returns
    -------
    Facts of a regression or classification, else None

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from latlin.mixture import BayesianGaussianMixture
    >>> X = np.random.default_rng(0).normal([[0.0, 0.0]] * 40 + [[9.0, 9.0]] * 40)
    >>> page = Path(tempfile.mkdtemp()) / "clusters.html"
    >>> write_report(page, BayesianGaussianMixture(4, random_state=0).fit(X), X)
    >>> "The rows fall into 2 clusters" in page.read_text(encoding="utf8")
    True
    """
    check_is_fitted(estimator)
    other = _other_page(estimator, X, y, folds, options)
    if other is not None:
        write_text(path, other)
        return None
    assessment = assess(estimator, X, y, folds=folds) if folds else None
    options.setdefault("curves", effect_curves(estimator, X))
    facts = gather(estimator, len(y), assessment=assessment, **options)
    write_text(path, render(facts))
    return facts


def _other_page(estimator: Any, X: Any, y: Any, folds: int, options: dict[str, Any]) -> str | None:
    """The page of a model that is no regression or classification of `latlin.linear`."""
    # when first needed: the pages of regressions and classifications do without
    from latlin.additive import AdditiveModel
    from latlin.factor import TrilinearFactorization
    from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor
    from latlin.mixture import BayesianGaussianMixture
    from latlin.report import factors

    title = options.get("title")
    if isinstance(estimator, AdditiveModel):
        return additive_page.render_additive(estimator, title, additive.describe_additive(estimator, X))
    if isinstance(estimator, BayesianGaussianMixture):
        return clusters.render_clusters(estimator, X, column_names(estimator, X), title or "Clusters")
    if isinstance(estimator, TrilinearFactorization):
        raise ValueError("write_report has no page for tables with three indices, got a TrilinearFactorization")
    if isinstance(estimator, factors.FACTORS):
        return factors.render_factors(estimator, X, title or "Factors")
    if isinstance(estimator, GaussianProcessClassifier):
        return processes.render_classes(estimator, X, y, str(options.get("target", "y")), title, folds)
    if isinstance(estimator, GaussianProcessRegressor):
        names, target = column_names(estimator, X), str(options.get("target", "y"))
        curves = processes.curves_of_process(estimator, X, names)
        rows = np.asarray(X, float)[:, 0], np.asarray(y, float)
        return processes.render_curves(curves, rows, estimator, target, title)
    return None


def column_names(estimator: Any, X: Any) -> list[str]:
    """Names of the features: those of the fit, of the data frame, or x0, x1, …"""
    held = getattr(estimator, "feature_names_in_", getattr(X, "columns", None))
    return [f"x{j}" for j in range(np.shape(X)[1])] if held is None else [str(name) for name in held]
