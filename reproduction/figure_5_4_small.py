"""Figure 5.4 (32×32 pixels) of Challis (2013): sixteen images, three rows per step, to the end.

The experiment of figure 5.4 at a quarter of its pixels and of its measurements: every image is halved in both
directions, 25 random rows come first, and three designed rows per step follow until there are 500. Gaussian KL has a
full covariance, which follows new rows by low-rank updates; local bounds (LVB) have 80 Lanczos steps. At 64×64 pixels
a run takes about half an hour per image and method, 16 to 25 hours in all (`python -m reproduction figure-5.4`). Both
go on from the files of finished and of interrupted runs.
"""

from __future__ import annotations

import os
from pathlib import Path

from reproduction.figure_5_4 import pages, said_of
from reproduction.image_design import QUICK, SMALL, Shelf, all_runs, shelf
from reproduction.output import made
from reproduction.page import at_size


def run(folder: str | os.PathLike[str], quick: bool = False, data: str | os.PathLike[str] | None = None) -> list[Path]:
    """The figure and a table; `data` names the folder with the images."""
    kept = shelf(made(folder), QUICK if quick else SMALL, data, quick)
    all_runs(kept, lambda: None if quick else _write(kept, quick))
    return _write(kept, quick)


def _write(kept: Shelf, quick: bool) -> list[Path]:
    found, plan = kept.there(), kept.plan
    said = said_of(found, kept, plan.first + plan.shown)
    return pages("figure_5_4_small", found, kept, at_size(said, quick), quick)
