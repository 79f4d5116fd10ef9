"""Figure 5.4 of Challis (2013): errors of reconstructed natural images against the number of measurements.

Mean and standard error over the images. Gaussian KL has a chevron of 80 full rows, local bounds (LVB) 80 Lanczos steps.
The source designs three rows per step; beside that there are designs of fifty rows per step, which take minutes per
image instead of hours. Beside its mode with random rows there are local bounds with random rows, so that the gain of
the design can be told from that of the engine. The page is written anew after every run, from the runs that are there;
`reproduction.figure_5_4.write(folder, data=…)` writes it at any time. Seconds are processor time.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from reproduction.image_design import COARSE, FULL, QUICK, Run, Shelf, all_runs, average, shelf
from reproduction.output import made, new_figure
from reproduction.page import TESTED, Claim, Picture, Table, at_size, drawn, write_page

Found = dict[str, dict[int, Run]]
MACHINE = "another machine (theirs a Core 2 Quad of 2.5 GHz, Matlab R2009a): shown, not compared"
#: what takes seconds → the method, the number of measurements and the source's seconds
SECONDS = {
    "first fit, G-KL": ("G-KL", 100, "30"),
    "first fit, LVB": ("LVB", 100, "5"),
    "update at 2048 rows, G-KL": ("G-KL", 2048, "60"),
    "update at 2048 rows, LVB": ("LVB", 2048, "25"),
}
FEWER = "not compared: the others have not run; those that have are in the tables"
STEPS = "of fifty rows some are directions that the engine cannot tell apart; both runs are in the table"
SUSPECTED = "the source suspects its low-rank variances, none off the Krylov space; ours have the mean of what is left"
#: errors whose ratio is smaller are alike
ALIKE = 1.1
#: and slopes whose ratio is smaller
SLOPES = 2.0
AGREE = f"alike means within {ALIKE - 1.0:.0%}"


def run(folder: str | os.PathLike[str], quick: bool = False, data: str | os.PathLike[str] | None = None) -> list[Path]:
    """The figure and a table; `data` names the folder with the images."""
    kept = shelf(made(folder), QUICK if quick else FULL, data, quick)
    all_runs(kept, lambda: None if quick else _write(kept, quick))
    return _write(kept, quick)


def write(folder: str | os.PathLike[str], data: str | os.PathLike[str] | None = None) -> list[Path]:
    """The page from the runs that are there."""
    return _write(shelf(made(folder), FULL, data, quick=False), quick=False)


def _write(kept: Shelf, quick: bool) -> list[Path]:
    found = kept.there()
    return pages("figure_5_4", found, kept, at_size(claims(found, kept), quick), quick)


def pages(stem: str, found: Found, kept: Shelf, said: list[Claim], quick: bool) -> list[Path]:
    """The page of these runs, with its tables and its figure."""
    tables = [_table(stem, found, kept), _sizes(f"{stem}_runs", found, kept)]
    return write_page(kept.folder, stem, said, tables, [_figure(stem, found, kept, quick)])


def _table(stem: str, found: Found, kept: Shelf) -> Table:
    rows = []
    for label, runs in found.items():
        shown = np.unique(np.concatenate([own["shown_counts"] for own in runs.values()]))
        for count, mean, spread, images in zip(*average(runs), strict=True):
            if count in shown:
                rows.append((label, int(count), f"{mean:.3f} ± {spread:.3f}", int(images)))
    side = kept.plan.side
    title = f"Figure 5.4: distance of the mean from the image, {side}×{side} pixels, mean ± standard error"
    return Table(stem, title, ("method", "measurements", "error", "images"), rows)


def _sizes(stem: str, found: Found, kept: Shelf) -> Table:
    """How much of the experiment there is."""
    rows = []
    for label in kept.plan.methods:
        reached = [int(own["counts"].max()) for own in found.get(label, {}).values()]
        whole = sum(count >= kept.plan.last for count in reached)
        rows.append((label, f"{whole} of {kept.plan.images}", max(reached, default=0), kept.plan.last))
    title = "How much of the experiment these numbers are from"
    return Table(stem, title, ("method", "images finished", "most measurements", "of"), rows)


def _figure(stem: str, found: Found, kept: Shelf, quick: bool) -> Picture:
    figure = new_figure("figure 5.4", 5.0, 3.5)
    axes = figure.subplots()
    for label, runs in found.items():
        counts, mean, spread, _ = average(runs)
        axes.errorbar(counts, mean, spread, label=label, capsize=2, errorevery=max(len(counts) // 12, 1))
    axes.set(xlabel="measurements", ylabel="reconstruction error")
    axes.legend()
    alt = "Reconstruction errors of images against the number of measurements, designed and random"
    return drawn(figure, kept.folder / f"{stem}.png", alt, quick)


def _designing(found: Found, name: str) -> list[str]:
    """The labels of the designs of an engine."""
    return [label for label in found if label == name or (label.startswith(name) and label.endswith("per step"))]


def longest(found: Found, name: str) -> str:
    """The label of a designing method whose runs reach furthest: three rows per step where they reach as far."""
    return max(
        _designing(found, name),
        key=lambda label: (max(r["counts"].max() for r in found[label].values()), label == name),
    )


def at(runs: dict[int, Run], count: float, images: set[int] | None = None, name: str = "errors") -> float:
    """Mean over images at the last number of measurements that is not beyond `count`."""
    chosen = [run for number, run in runs.items() if images is None or number in images]
    return float(np.mean([run[name][run["counts"] <= count][-1] for run in chosen]))


def claims(found: Found, kept: Shelf) -> list[Claim]:
    """What §5.4 says of the figure, at the sizes that there are, and seconds beside those of the source."""
    return [*said_of(found, kept, 400.0), *_seconds(found, kept)]


def said_of(found: Found, kept: Shelf, early: float) -> list[Claim]:
    """What §5.4 says of the figure, with `early` measurements and at the end."""
    names = {name: longest(found, name) for name in ("G-KL", "LVB") if _designing(found, name)}
    needed = [names.get("G-KL"), names.get("LVB"), "MAP, random rows", "LVB, random rows"]
    if any(label not in found for label in needed):
        return []
    images = set.intersection(*(set(found[label]) for label in needed))  # type: ignore[index]
    last = min(max(found[label][i]["counts"].max() for i in images) for label in needed)  # type: ignore[index]
    errors = {label: at(found[label], last, images) for label in needed}  # type: ignore[index]
    ours = f"{', '.join(f'{label} {error:.2f}' for label, error in errors.items())} at {last:.0f} ({_counted(images)})"
    gkl, lvb, mode, random = errors.values()
    most = f"{kept.plan.images} (document: 16)" if kept.plan.images != 16 else "16"
    return [
        Claim("images", "16", f"{len(images)} of {most}", None if len(images) < 16 else True, FEWER),
        Claim("designs at the end", "below random rows", ours, min(gkl, lvb) < min(mode, random)),
        Claim("LVB at the end", "overtaken by MAP with random rows", ours, lvb > mode, f"{SUSPECTED}; {TESTED}"),
        _alike(found, names, images, early),
        _slopes(found, names, images, last),
        *_step(found),
        *_full(found),
    ]


def _alike(found: Found, names: dict[str, str], images: set[int], early: float) -> Claim:
    """Early on, with three rows per step where both designs have reached that."""
    fine = all(any(own["counts"].max() >= early for own in found.get(name, {}).values()) for name in names)
    labels = list(names) if fine else list(names.values())
    shared = set.intersection(images, *(set(found[label]) for label in labels))
    first, second = (at(found[label], early, shared) for label in labels)
    spread = max(first, second) / min(first, second)
    ours, said = f"{first:.2f} and {second:.2f}, within {spread - 1.0:.0%}", " and ".join(labels)
    why = f"{AGREE}; the table has both steps and the full covariance"
    return Claim(f"{said} at {early:.0f} measurements", "similar", ours, spread < ALIKE, why)


def _slopes(found: Found, names: dict[str, str], images: set[int], last: float) -> Claim:
    """Errors lost over the last fifth of the measurements, Gaussian KL with design and the mode without."""
    middle = 0.8 * last
    gkl, mode = (
        at(found[label], middle, images) - at(found[label], last, images)
        for label in (names["G-KL"], "MAP, random rows")
    )
    ours = f"{gkl:.2f} and {mode:.2f} lost from {middle:.0f} to {last:.0f}"
    gains = "designs gain to the end here; the run of LVB with random rows has the slope of the mode"
    why = f"similar means within a factor of {SLOPES:g}; {gains}"
    return Claim(
        "G-KL and MAP with random rows towards the end",
        "similar slopes",
        ours,
        gkl / mode < SLOPES and mode / gkl < SLOPES,
        why,
    )


def _counted(images: set[int]) -> str:
    return f"{len(images)} image{'s' * (len(images) != 1)}"


def _step(found: Found) -> list[Claim]:
    """The same designs with few and with many rows per step, where both are there."""
    said = []
    for name in ("G-KL", "LVB"):
        coarse = f"{name}, {COARSE} per step"
        if coarse not in found:
            continue
        if name not in found:
            said.append(
                Claim(f"{name}: rows per step", "3", f"{COARSE}", None, "no run with three rows per step is there yet")
            )
            continue
        images = set(found[name]) & set(found[coarse])
        last = min(max(own[i]["counts"].max() for i in images) for own in (found[name], found[coarse]))
        last -= (last - 100.0) % COARSE
        few, many = (at(found[label], last, images) for label in (name, coarse))
        ours = f"{few:.2f} with 3 rows per step, {many:.2f} with {COARSE}, at {last:.0f} ({_counted(images)})"
        said.append(
            Claim(f"{name}: rows per step", "3", ours, max(few, many) / min(few, many) < ALIKE, f"{AGREE}; {STEPS}")
        )
    return said


def _full(found: Found) -> list[Claim]:
    """A full covariance against the chevron, three rows per step each, as far as both have come."""
    labels = [label for label in ("G-KL, full", "G-KL") if label in found]
    images = set.intersection(*(set(found[label]) for label in labels)) if len(labels) == 2 else set()
    if not images:
        return []
    last = min(max(found[label][i]["counts"].max() for i in images) for label in labels)
    full, chevron = (at(found[label], last, images) for label in labels)
    ours = f"{full:.2f} full, {chevron:.2f} chevron of 80 rows, at {last:.0f} ({_counted(images)})"
    return [Claim("G-KL, full covariance", "not in the document", ours, None, "a larger family of Gaussians")]


def _seconds(found: Found, kept: Shelf) -> list[Claim]:
    said = []
    for what, (name, count, theirs) in SECONDS.items():
        if not _designing(found, name):
            continue
        runs = found[longest(found, name)]
        used = {i: run for i, run in runs.items() if len(run["counts"])}
        reached = min(count, max(float(run["counts"].max()) for run in used.values()))
        ours = at(used, reached, name="seconds")
        said.append(Claim(f"seconds, {what}", theirs, f"{ours:.1f} at {reached:.0f} rows", None, MACHINE))
    return said
