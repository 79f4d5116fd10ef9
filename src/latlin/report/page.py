"""The page: one HTML file with everything in it, no network, no script."""

from __future__ import annotations

import os
from typing import Any

from sklearn.utils.validation import check_is_fitted

from latlin.numerics.atomic import write_text
from latlin.report import sections
from latlin.report.assess import assess
from latlin.report.facts import Facts, gather
from latlin.report.markup import CSS, text

#: nothing may be loaded from anywhere, and nothing may run
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(facts: Facts) -> str:
    """The page of a fit, as text."""
    parts = (
        sections.head(facts),
        sections.coefficients(facts),
        sections.calibration(facts),
        sections.checks(facts),
        sections.data(facts),
        sections.evidence(facts),
        sections.convergence(facts),
        sections.meaning(facts),
    )
    return page_of(facts.title, "".join(parts), facts.version)


def page_of(title: str, body: str, version: str) -> str:
    """A whole page around its sections."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{text(POLICY)}">\n'
        f'<title>{text(title)}</title>\n<link rel="icon" href="data:,">\n<style>\n{CSS}\n</style>\n</head>\n'
        f"<body>\n<main>\n{body}\n<footer>Made with latlin {text(version)}.</footer>\n</main>\n"
        "</body>\n</html>\n"
    )


def write_report(
    path: str | os.PathLike[str], estimator: Any, X: Any, y: Any, *, folds: int = 5, **options: Any
) -> Facts:
    """Write the report of a fitted estimator of `latlin.linear` and return what it says.

    Parameters
    ----------
    path : path
        An HTML file; it is written all or nothing.
    estimator : fitted estimator
    X, y : arrays or data frames
        The training data; clones of the estimator are fitted to folds of it.
    folds : int
        0 leaves the held-out rows out.
    **options
        Of `gather`: target, title, columns, notes, spread, diagnosis, engines.
    """
    check_is_fitted(estimator)
    assessment = assess(estimator, X, y, folds=folds) if folds else None
    facts = gather(estimator, len(y), assessment=assessment, **options)
    write_text(path, render(facts))
    return facts
