"""Table 5.4 of 002_71af9439e55c646f: constrained covariances in logistic regression, D = 250.

Weights, covariates and labels are drawn as in §5.2; the same is then fitted with chevron, banded, subspace and
factor-analysis covariances and with local bounds whose variances are by Lanczos. Ten data sets a column; the full
covariance and a row that tests why the subspace bounds of the table are low stand beside them.
"""

from __future__ import annotations

import os
from pathlib import Path

from latlin.reproduce.covariance_tables import Plan, all_scores, claims, figure_of, table_of
from latlin.reproduce.output import made
from latlin.reproduce.page import write_page
from latlin.reproduce.printed import TABLE_5_4

FULL = Plan(250, (125, 250, 1250), (13, 25), 2500)
QUICK = Plan(40, (20, 40, 200), (2, 4), 400, seeds=2)


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """The table, a figure and the page."""
    target = made(folder)
    found = all_scores(target, QUICK if quick else FULL)
    picture = figure_of(target / "table_5_4.png", found, quick)
    return write_page(target, "table_5_4", claims(TABLE_5_4, FULL, found), [table_of("table_5_4", found)], [picture])
