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
from latlin.reproduce.output import made, new_figure
from latlin.reproduce.page import Claim, Table, at_size, drawn, write_page

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
    alt = "Reconstruction errors of images against the number of measurements, designed and random"
    picture = drawn(figure, target / "figure_5_4.png", alt, quick)
    title = f"Figure 5.4: distance of the mean from the image, {plan.side}×{plan.side} pixels, mean ± standard error"
    table = Table("figure_5_4", title, ("method", "measurements", "error", "images"), rows)
    return write_page(target, "figure_5_4", at_size(claims(found), quick), [table], [picture])


def claims(found: dict[str, list[dict[str, Array]]]) -> list[Claim]:
    """What §5.4 says of the figure."""
    last = {label: float(np.mean([kept["errors"][-1] for kept in runs])) for label, runs in found.items()}
    random = {label: error for label, error in last.items() if label.endswith("random rows")}
    ours = ", ".join(f"{label} {error:.2f}" for label, error in last.items())
    best = min(error for label, error in last.items() if label not in random)
    said = [Claim("the best design at the end", "below random rows", ours, best < min(random.values()))]
    if "MAP, random rows" in last:
        overtaken = last["LVB"] > last["MAP, random rows"]
        why = "their low-rank variances; the runs with LVB and random rows tell design from engine"
        said.append(Claim("LVB at the end", "overtaken by MAP with random rows", ours, overtaken, why))
    return [*said, *(Claim(f"seconds, {what}", theirs, "–", None, TIMED) for what, theirs in SECONDS.items())]


TIMED = "not compared: runs are not timed alone here; `benchmarks/design.py` does"
SECONDS = {"first fit, G-KL": "30", "first fit, LVB": "5", "2048 rows, G-KL": "60", "2048 rows, LVB": "25"}


def _shown(counts: Array, shown: Array) -> list[int]:
    return [i for i, count in enumerate(counts) if count in shown]
