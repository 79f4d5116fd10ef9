"""Figure 5.3 of Challis (2013): images reconstructed from designed and random measurements.

One pane an image: the true one, then a row a method with the estimates after 100, 400, 700, … measurements. The
experiment is shared with figure 5.4, whose page says how much of it there is. What the source says about textures is
measured: how flat an estimate is (share of neighbouring pixels that differ by less than 0.005; few jumps among flat
pixels look pixelated) and how unevenly it errs (spread of the errors of 8×8 patches, relative to their mean).
`reproduction.figure_5_3.write(folder, data=…)` writes the page from the runs that are there.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from reproduction.arrays import Array
from reproduction.figure_5_4 import Found, longest
from reproduction.image_design import FULL, QUICK, Shelf, all_runs, shelf
from reproduction.output import made, new_figure
from reproduction.page import TESTED, Claim, Picture, Table, at_size, drawn, write_page

#: image, method, measurements, error, flatness, unevenness
Line = tuple[int, str, int, float, float, float]
PATCH = 8
#: grey values that differ by less are alike
STEP = 0.005
PANES = 2


def run(folder: str | os.PathLike[str], quick: bool = False, data: str | os.PathLike[str] | None = None) -> list[Path]:
    """The figure, a pane for each of the first two images; `data` names the folder with the images."""
    kept = shelf(made(folder), QUICK if quick else FULL, data, quick)
    all_runs(kept, lambda: None if quick else _write(kept, quick))
    return _write(kept, quick)


def write(folder: str | os.PathLike[str], data: str | os.PathLike[str] | None = None) -> list[Path]:
    """The page from the runs that are there."""
    return _write(shelf(made(folder), FULL, data, quick=False), quick=False)


def _write(kept: Shelf, quick: bool) -> list[Path]:
    found = kept.there()
    numbers = sorted({number for runs in found.values() for number in runs})
    lines = [line for number in numbers for line in _lines(found, kept.images[number], number)]
    columns = ("image", "method", "measurements", "error", "flatness", "unevenness")
    table = Table("figure_5_3", "The estimates that are shown", columns, lines)
    pictures = [_pane(found, kept, number, quick) for number in numbers[:PANES]]
    return write_page(kept.folder, "figure_5_3", at_size(claims(found, lines), quick), [table], pictures)


def _pane(found: Found, kept: Shelf, number: int, quick: bool) -> Picture:
    image = kept.images[number]
    runs = {label: own[number] for label, own in found.items() if number in own}
    columns = max(len(own["means"]) for own in runs.values())
    figure = new_figure("figure 5.3", 1.2 * columns + 1.2, 1.25 * len(runs))
    panes = figure.subplots(len(runs), columns + 1, squeeze=False)
    for axes in panes.flat:
        axes.set_axis_off()
    panes[0, columns].imshow(image, cmap="gray", vmin=-1, vmax=1)
    for line, (label, own) in zip(panes, runs.items(), strict=True):
        for axes, mean, count in zip(line, own["means"], own["shown_counts"], strict=False):
            axes.imshow(mean.reshape(image.shape), cmap="gray", vmin=-1, vmax=1)
            axes.set_title(f"{label}, {int(count)}", fontsize=5)
    alt = f"Image {number} as every method reconstructs it from more and more measurements"
    return drawn(figure, kept.folder / f"figure_5_3_{number}.png", alt, quick)


def _lines(found: Found, image: Array, number: int) -> list[Line]:
    lines = []
    for label, runs in found.items():
        own = runs.get(number)
        for mean, count in zip(own["means"], own["shown_counts"], strict=True) if own else ():
            estimate = mean.reshape(image.shape)
            error = float(np.linalg.norm(estimate - image))
            lines.append((number, label, int(count), error, flatness(estimate), unevenness(estimate - image)))
    return lines


def flatness(image: Array) -> float:
    """Share of neighbours that are alike."""
    return float(np.mean([np.mean(np.abs(np.diff(image, axis=axis)) < STEP) for axis in (0, 1)]))


def unevenness(error: Array) -> float:
    """Standard deviation of the patches' root mean square errors, relative to their mean."""
    side = max(len(error) // PATCH, 1)
    patches = error[: side * PATCH, : side * PATCH].reshape(side, -1, side, len(error) // side)
    sizes = np.sqrt(np.mean(patches**2, axis=(1, 3)))
    return float(sizes.std() / sizes.mean())


def claims(found: Found, lines: list[Line]) -> list[Claim]:
    """The images come nearer with more measurements, and differ in their textures."""
    said = []
    for label in found:
        counts = [line[2] for line in lines if line[1] == label]
        first, last = (_mean(lines, label, end(counts), 3) for end in (min, max))
        if min(counts) < max(counts):
            ours = f"{first:.2f} and {last:.2f}"
            said.append(Claim(f"{label}: error at first and at last", "falls", ours, last < first))
    return [*said, *_textures(found, lines)]


def _textures(found: Found, lines: list[Line]) -> list[Claim]:
    """Roughness and unevenness half-way, Gaussian KL against the other two."""
    needed = [name for name in ("G-KL", "LVB") if any(label.startswith(name) for label in found)]
    if len(needed) < 2 or "MAP, random rows" not in found:
        return []
    labels = [*(longest(found, name) for name in needed), "MAP, random rows"]
    middle = _shared(lines, labels, 0.5)
    flat = [_mean(lines, label, middle, 4) for label in labels]
    uneven = [_mean(lines, label, middle, 5) for label in labels]
    eye = "a matter of the eye there; the table has the numbers of every run, random rows among them"
    return [
        Claim(f"{what} at {middle}: {', '.join(labels)}", theirs, ", ".join(f"{v:.3f}" for v in values), agrees, why)
        for what, theirs, values, agrees, why in (
            (
                "flatness",
                "LVB and MAP more pixelated than G-KL",
                flat,
                flat[0] < min(flat[1:]),
                TESTED,
            ),
            (
                "unevenness",
                "G-KL with good and bad patches, LVB and MAP even",
                uneven,
                uneven[0] > max(uneven[1:]),
                eye,
            ),
        )
    ]


def _shared(lines: list[Line], labels: list[str], share: float) -> int:
    """A number of measurements at which all of these are shown, so far along."""
    counts = sorted(set.intersection(*({line[2] for line in lines if line[1] == label} for label in labels)))
    return counts[min(int(share * len(counts)), len(counts) - 1)]


def _mean(lines: list[Line], label: str, count: int, column: int) -> float:
    return float(np.mean([line[column] for line in lines if line[1] == label and line[2] == count]))
