"""Figure 5.4 of 002_71af9439e55c646f: errors of reconstructed natural images against the number of measurements.

Mean and standard error over the images. Beside the source's mode with random rows there is one engine with both
designed and random rows.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from latlin.reproduce.image_design import FULL, QUICK, all_runs
from latlin.reproduce.output import made, new_figure, write_table

Array = NDArray[np.float64]


def run(folder: str | os.PathLike[str], quick: bool = False, data: str | os.PathLike[str] | None = None) -> list[Path]:
    """The figure and a table; `data` names the folder with the images."""
    target, plan = made(folder), QUICK if quick else FULL
    images, found = all_runs(target, plan, data, "quick" if quick else "full")
    figure = new_figure("figure 5.4", 5.0, 3.5)
    axes, rows = figure.subplots(), []
    for label, runs in found.items():
        counts, errors = runs[0]["counts"], np.array([kept["errors"] for kept in runs])
        spread = errors.std(axis=0, ddof=1) / np.sqrt(len(errors)) if len(errors) > 1 else np.zeros(len(counts))
        axes.errorbar(counts, errors.mean(axis=0), spread, label=label, capsize=2, errorevery=max(len(counts) // 12, 1))
        for i in _shown(counts, runs[0]["shown_counts"]):
            rows.append((label, int(counts[i]), f"{errors[:, i].mean():.3f} ± {spread[i]:.3f}", len(images)))
    axes.set(xlabel="measurements", ylabel="reconstruction error")
    axes.legend()
    figure.savefig(target / "figure_5_4.png", dpi=80 if quick else 160)
    title = f"Figure 5.4: distance of the mean from the image, {plan.side}×{plan.side} pixels, mean ± standard error"
    table = write_table(target / "figure_5_4.md", title, ("method", "measurements", "error", "images"), rows)
    return [table, target / "figure_5_4.png"]


def _shown(counts: Array, shown: Array) -> list[int]:
    return [i for i, count in enumerate(counts) if count in shown]
