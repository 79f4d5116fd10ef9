"""Table 5.5 of Challis (2013): constrained covariances in logistic regression, D = 1000.

Weights, covariates and labels are drawn as in §5.2; the same is then fitted with chevron, banded, subspace and
factor-analysis covariances and with local bounds whose variances are by Lanczos. Ten data sets per column, unless the
column "data sets" has fewer; the full covariance stands beside them.
"""

from __future__ import annotations

import os
from pathlib import Path

from reproduction.covariance_claims import run_table
from reproduction.covariance_tables import Plan, all_scores
from reproduction.output import made
from reproduction.printed import TABLE_5_5

FULL = Plan(1000, (500, 1000, 5000), (50, 100), 5000)
QUICK = Plan(40, (20, 40, 200), (2, 4), 400, seeds=2)


def run(folder: str | os.PathLike[str], quick: bool = False, finished: bool = False) -> list[Path]:
    """The table, a figure and the page; `finished` writes them from the data sets that the folder has."""
    found = all_scores(made(folder), QUICK if quick else FULL, finished)
    return run_table(folder, "table_5_5", TABLE_5_5, FULL, found, quick)
