"""Figure 5.3 of 002_71af9439e55c646f: images reconstructed from designed and random measurements.

One pane an image: the true one, then a row a method with the estimates after 100, 400, 700, … measurements. The
experiment is shared with figure 5.4.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from latlin.reproduce.image_design import FULL, QUICK, all_runs
from latlin.reproduce.output import made, new_figure
from latlin.reproduce.page import Claim, Picture, Table, at_size, drawn, write_page


def run(folder: str | os.PathLike[str], quick: bool = False, data: str | os.PathLike[str] | None = None) -> list[Path]:
    """The figure, a pane for each of the first two images; `data` names the folder with the images."""
    target, plan = made(folder), QUICK if quick else FULL
    images, found = all_runs(target, plan, data, "quick" if quick else "full")
    pictures: list[Picture] = []
    rows: list[tuple[int, str, int, float]] = []
    for number, image in enumerate(images[:2]):
        runs = {label: found[label][number] for label in plan.methods}
        columns = max(len(kept["means"]) for kept in runs.values())
        figure = new_figure("figure 5.3", 1.2 * columns + 1.2, 1.25 * len(runs))
        panes = figure.subplots(len(runs), columns + 1, squeeze=False)
        for axes in panes.flat:
            axes.set_axis_off()
        panes[0, columns].imshow(image, cmap="gray", vmin=-1, vmax=1)
        for line, (label, kept) in zip(panes, runs.items(), strict=True):
            for axes, mean, count in zip(line, kept["means"], kept["shown_counts"], strict=False):
                axes.imshow(mean.reshape(image.shape), cmap="gray", vmin=-1, vmax=1)
                axes.set_title(f"{label}, {int(count)}", fontsize=5)
                rows.append((number, label, int(count), float(np.linalg.norm(mean - image.ravel()))))
        alt = f"Image {number} as every method reconstructs it from more and more measurements"
        pictures.append(drawn(figure, target / f"figure_5_3_{number}.png", alt, quick))
    title = "Distance of the shown estimates from the images"
    table = Table("figure_5_3", title, ("image", "method", "measurements", "error"), rows)
    return write_page(target, "figure_5_3", at_size(claims(rows), quick), [table], pictures)


def claims(rows: list[tuple[int, str, int, float]]) -> list[Claim]:
    """The images come nearer with more measurements; textures, which the text describes, are for the eye."""
    said = []
    for label in dict.fromkeys(label for _, label, _, _ in rows):
        first, last = (
            np.mean([error for image, own, count, error in rows if own == label and count == end(_counts(rows, label))])
            for end in (min, max)
        )
        said.append(
            Claim(f"{label}: error at first and at last", "falls", f"{first:.2f} and {last:.2f}", bool(last < first))
        )
    return said


def _counts(rows: list[tuple[int, str, int, float]], label: str) -> list[int]:
    return [count for _, own, count, _ in rows if own == label]
