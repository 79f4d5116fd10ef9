"""Table 5.1 of Challis (2013): robust Gaussian process regression, exact Gaussian against Student t and Laplace.

Kernel (5.1.3), squared exponential with one length scale per column plus white noise, its parameters by evidence; the
scale of the likelihood by the log probability of a validation part, df = 3 (§5.1). Ten partitions, standardised by the
training part; log marginal likelihood, mean squared error of test targets in the units of y (the printed ones can be in
no others: 26 for Boston), and mean log probability of a standardised test target. Friedman's and Neal's sets are
generated; Concrete Slump (`concrete_slump.csv.gz`) and Boston housing (`boston_housing.csv.gz`, target in the last
column) are read from a folder of your own, or from `data` in the output folder. In Friedman's set a tenth of the
training targets are N(15, 3²); in Neal's a twentieth of all have ten times the noise. From Python, `run(folder,
partitions=4)` makes the page from the first four partitions.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from reproduction.arrays import Array
from reproduction.output import made, new_figure
from reproduction.page import TESTED, Claim, Picture, Table, compared, drawn, write_page
from reproduction.printed import TABLE_5_1, printed
from reproduction.resume import data_file, each, remembered
from reproduction.robust_regression import Runs, Sizes, fits, mean_of, part_of

Key = tuple[str, str, str]
METHODS = (
    ("Gauss", "exact", "auto"),
    ("Student t", "G-KL", "gkl"),
    ("Student t", "LVB", "lvb"),
    ("Student t", "Lap", "laplace"),
    ("Laplace", "G-KL", "gkl"),
    ("Laplace", "LVB", "lvb"),
    ("Laplace", "G-EP", "ep"),
)
#: likelihood and engine of the printed columns
COLUMNS = tuple((likelihood, label) for likelihood, label, _ in METHODS)
NUMBERS = ("LML", "MSE", "TLP")
FILES = {"Slump": "concrete_slump.csv.gz", "Boston": "boston_housing.csv.gz"}
SIZES = {
    "Slump": Sizes(50, 25, 28),
    "Boston": Sizes(100, 100, 306),
    "Friedman": Sizes(100, 100, 100),
    "Neal": Sizes(100, 100, 100),
}
QUICK = Sizes(20, 15, 30, 4, (0.1, 0.4))


def run(
    folder: str | os.PathLike[str],
    quick: bool = False,
    data: str | os.PathLike[str] | None = None,
    partitions: int = 10,
) -> list[Path]:
    """The table, a figure and the page; `data` names the folder with the two real data sets."""
    target = made(folder)
    files = {name: data_file(target, data, file) for name, file in FILES.items()}
    sets = [*(name for name, path in files.items() if path is not None), "Friedman", "Neal"]
    paths = {name: files.get(name) for name in sets}
    count = 2 if quick else partitions
    found = compute(target, paths, quick, count)
    said = [*_ordered(found), *claims(found, quick)]
    return write_page(target, "table_5_1", said, [_table(found)], [_draw(target, found, quick)])


def compute(target: Path, files: dict[str, Path | None], quick: bool, partitions: int) -> dict[Key, Runs]:
    """The fits of every printed column, partition by partition; each is kept in `target`."""
    cells = printed(TABLE_5_1)
    jobs = [
        (name, seed, method)
        for seed in range(partitions)
        for name in files
        for method, theirs in zip(METHODS, cells[name, "LML"], strict=True)
        if theirs is not None
    ]
    sizes = dict.fromkeys(files, QUICK) if quick else SIZES
    found: dict[Key, list[Array]] = {}
    for name, seed, (likelihood, label, engine) in each("table 5.1", jobs):
        kept = remembered(
            target,
            f"table_5_1{'_quick' * quick}_{name}_{seed}_{likelihood}_{label}",
            lambda n=name, s=seed, k=likelihood, e=engine: {  # type: ignore[misc]
                "fits": fits(part_of(n, s, sizes[n], files[n]), k, e, sizes[n])
            },
        )
        found.setdefault((name, likelihood, label), []).append(kept["fits"])
    units = {
        name: np.array([part_of(name, seed, sizes[name], files[name]).unit for seed in range(partitions)])
        for name in files
    }
    return {key: Runs(np.array(all_), units[key[0]]) for key, all_ in found.items()}


def claims(found: dict[Key, Runs], quick: bool) -> list[Claim]:
    """Every printed number, and why it was not run where it was not."""
    said = []
    for (name, quantity), cells in printed(TABLE_5_1).items():
        for theirs, (likelihood, label) in zip(cells, COLUMNS, strict=True):
            if theirs is None:
                continue
            what = f"{quantity}, {likelihood}, {label}, {name}"
            if (name, likelihood, label) in found:
                ours = mean_of(found[name, likelihood, label].number(quantity))
                said.append(compared(what, theirs, ours, TESTED, not quick))
            else:
                why = f"no {FILES[name]} in the data folder" if name in FILES else "not run"
                said.append(Claim(what, str(theirs), "–", None, f"not compared: {why}"))
    return said


def _ordered(found: dict[Key, Runs]) -> list[Claim]:
    """The G-KL evidence is above that of LVB with the Laplace likelihood, which the text proves for fixed kernels."""
    pairs = [(found.get((name, "Laplace", "G-KL")), found.get((name, "Laplace", "LVB"))) for name, _, _ in found]
    both = [(a.chosen("evidence"), b.chosen("evidence")) for a, b in pairs if a is not None and b is not None]
    if not both:
        return []
    least = min(float(np.nanmean(a - b)) for a, b in both)
    why = "each has its own kernel, and its own local optimum; engines at one kernel are compared in the tests"
    return [Claim("LML of G-KL above LVB, Laplace", "in all sets", f"by {least:.2f} at least", least > 0.0, why)]


def _draw(target: Path, found: dict[Key, Runs], quick: bool) -> Picture:
    figure = new_figure("table 5.1", 9.0, 3.6)
    axes = figure.subplots()
    for name in dict.fromkeys(name for name, _, _ in found):
        shown = {f"{k}\n{e}": mean_of(r.chosen("log_probability")) for (own, k, e), r in found.items() if own == name}
        axes.plot(list(shown), [score.value for score in shown.values()], "o", label=name)
    axes.set_ylabel("mean log probability of a test target")
    axes.legend()
    return drawn(figure, target / "table_5_1.png", "Test scores of every likelihood and engine, by data set", quick)


def _table(found: dict[Key, Runs]) -> Table:
    columns = ("data", "likelihood", "engine", "LML", "MSE", "TLP", "median scale", "converged", "seconds per fit")
    rows = []
    for (name, likelihood, label), runs in found.items():
        shown = [str(mean_of(runs.number(number))._replace(digits=3)) for number in NUMBERS]
        scale = float(np.median(runs.chosen("scale")))
        ended = runs.field("converged")
        fitted = f"{int(ended.sum())} of {ended.size}"
        rows.append((name, likelihood, label, *shown, scale, fitted, float(runs.field("seconds").mean())))
    count = max(len(runs.units) for runs in found.values())
    return Table("table_5_1", f"Mean ± standard error over {count} partitions", columns, rows)
