"""Group factors of Mancevo (2016): which factor acts in which of four views, recovered from the data alone.

One factor is shared by all views, one by every pair of neighbours, and two views have a private one. Twice as many
factors as there are may be used; the rest must die, and the views × factors matrix of activity must be the true one.
Tried with independent precisions and with the low-rank model of their logarithms.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from latlin.factor import GroupFactorAnalysis
from reproduction.arrays import Array
from reproduction.output import made, new_figure
from reproduction.page import Claim, Table, drawn, write_page
from reproduction.resume import each, remembered

#: views × factors: shared by all, by pairs of neighbours, private to the first and to the last view
TRUTH = np.array([[1, 1, 0, 0, 1, 0], [1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 0, 0], [1, 0, 0, 1, 0, 1]], dtype=bool)
NAMES = ("first", "second", "third", "fourth")
EACH = (
    "the table has the pattern, factors and bound of every rank; `group_factors.recover(seed, rank)` runs one data set"
)


class Recovery(NamedTuple):
    """One data set: shares of variance in the order of the true factors, whether the pattern is right, and the fit."""

    share: Array
    exact: bool
    n_factors: int
    n_iter: int
    bound: float


def draw(seed: int, n: int = 200, size: int = 30) -> dict[str, Array]:
    """Four views with unit noise and standard normal loadings where a factor acts."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, TRUTH.shape[1]))
    views = {}
    for name, active in zip(NAMES, TRUTH, strict=True):
        loadings = rng.standard_normal((TRUTH.shape[1], size)) * active[:, None]
        views[name] = z @ loadings + rng.standard_normal((n, size))
    return views


def recover(seed: int, rank: str | int) -> Recovery:
    """Fit with twice the true number of factors and compare the patterns of activity."""
    model = GroupFactorAnalysis(2 * TRUTH.shape[1], rank=rank, noise="view", random_state=seed).fit(draw(seed))
    active, share = model.factor_activity_.active, model.explained_variance_
    exact = sorted(active.T.tolist()) == sorted(TRUTH.T.tolist())
    order = [int((active != column[:, None]).sum(axis=0).argmin()) for column in TRUTH.T]
    return Recovery(share[:, order], exact, model.n_factors_, model.n_iter_, model.lower_bound_)


def compute(
    folder: Path, seeds: int = 10, ranks: tuple[str | int, ...] = ("full", 2, 4)
) -> dict[str | int, list[Recovery]]:
    """Recoveries of all data sets for every model of the precisions; those that are kept are not computed again."""
    found: dict[str | int, list[Recovery]] = {rank: [] for rank in ranks}
    for rank, seed in each("group factors", [(rank, seed) for rank in ranks for seed in range(seeds)]):
        kept = remembered(
            folder,
            f"group_factors_{rank}_{seed}",
            lambda r=rank, s=seed: {name: np.asarray(v) for name, v in recover(s, r)._asdict().items()},  # type: ignore[misc]
        )
        counts = bool(kept["exact"]), int(kept["n_factors"]), int(kept["n_iter"])
        found[rank].append(Recovery(kept["share"], *counts, float(kept["bound"])))
    return found


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """A heat map of truth and recovery, and a table; the paths of what was written."""
    target = made(folder)
    found = compute(target, 1, ("full",)) if quick else compute(target)
    figure = new_figure("group-factors", 9.0, 3.2)
    axes = figure.subplots(1, 2)
    _draw(axes[0], TRUTH.astype(float), "truth")
    _draw(axes[1], found["full"][0].share, "recovered, share of variance")
    alt = "Which factor acts in which view, in truth and as recovered"
    picture = drawn(figure, target / "group_factors.png", alt, quick)
    rows = [
        (
            str(rank),
            f"{sum(one.exact for one in all_)} of {len(all_)}",
            float(np.mean([one.n_factors for one in all_])),
            float(np.mean([one.n_iter for one in all_])),
            float(np.mean([one.bound for one in all_])),
        )
        for rank, all_ in found.items()
    ]
    columns = ("rank", "pattern exactly right", "factors left", "sweeps", "bound")
    title = f"Group factors: four views, {TRUTH.shape[1]} factors, {2 * TRUTH.shape[1]} allowed (means over data sets)"
    return write_page(target, "group_factors", claims(found), [Table("group_factors", title, columns, rows)], [picture])


def claims(found: dict[str | int, list[Recovery]]) -> list[Claim]:
    """The document derives the model and prints no number: what it is for is checked."""
    said = []
    for rank, all_ in found.items():
        exact = sum(one.exact for one in all_)
        ours = f"{exact} of {len(all_)} data sets"
        said.append(Claim(f"activity, rank {rank}", "recovered", ours, exact >= 0.8 * len(all_), EACH))
        left = [one.n_factors for one in all_]
        most = sum(count == TRUTH.shape[1] for count in left) >= 0.8 * len(all_)
        said.append(Claim(f"factors left, rank {rank}", str(TRUTH.shape[1]), str(left), most, EACH))
    return said


def _draw(axes: Any, values: Array, title: str) -> None:
    axes.imshow(values, cmap="viridis", vmin=0.0)
    axes.set_title(title)
    axes.set_xlabel("factor")
    axes.set_yticks(range(len(NAMES)), NAMES)
