"""The experiment behind figures 5.3 and 5.4 of Challis (2013): natural images measured by sequential design.

Grey values in [−1, 1]; Laplace priors on finite differences (τ = 0.1) and wavelet responses (τ = 0.14); unit-norm
measurements with noise variance 0.005, a hundred random ones at first and three designed ones per step, or fifty,
which takes minutes per image instead of hours. "G-KL, full" has a full covariance, which follows three rows per step by
low-rank updates (`measure` runs it alone). Images come from `images_64.npz` (an array `images` of shape
(n, 64, 64), bytes) in a folder of your own; without it they are generated. A run keeps its measurements in the folder
as it goes and continues from there, and pages are written from whatever is there.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from latlin import ConvergenceWarning
from latlin.design import SequentialDesign, finite_differences, wavelet_transform
from latlin.engines import MAP, GaussianKL, LocalBound
from latlin.potentials import Laplace
from reproduction.arrays import Array
from reproduction.figure_5_2 import unit_rows
from reproduction.resume import data_file, each, is_kept, keep, named, recalled

#: arrays of a run by their names
Run = dict[str, Array]
NOISE = 0.005
FINE = 3
COARSE = 50
#: steps of few rows after which a run is kept
OFTEN = 10
KEPT = ("counts", "errors", "seconds", "shown_counts", "means")


class Method(NamedTuple):
    """An engine, whether it designs (then every step has a fit, else only those that are shown), and rows per step.

    With a slack the posterior follows the measurements by low-rank updates.
    """

    engine: Any
    designs: bool
    step: int
    slack: float | None = None


class Plan(NamedTuple):
    """Side of the images, measurements at first and at last, distance of those shown, and how many images."""

    side: int
    first: int
    last: int
    shown: int
    images: int
    methods: dict[str, Method]


CHEVRON = GaussianKL(covariance="chevron", rank=80, tol=0.1)
LANCZOS = LocalBound(variances="lanczos", rank=80, tol=1e-2, max_iter=7)
FULL = Plan(
    *(64, 100, 2000, 300, 16),
    methods={
        "G-KL, 50 per step": Method(CHEVRON, True, COARSE),
        "LVB, 50 per step": Method(LANCZOS, True, COARSE),
        "MAP, random rows": Method(MAP(tol=1e-3), False, COARSE),
        "LVB, random rows": Method(LANCZOS, False, COARSE),
        "G-KL": Method(CHEVRON, True, FINE),
        "LVB": Method(LANCZOS, True, FINE),
        "G-KL, full": Method(GaussianKL(tol=0.1), True, FINE, slack=5.0),
    },
)
#: a quarter of the pixels and of the measurements: all images, three rows per step, to the end
SMALL = Plan(
    *(32, 25, 500, 75, 16),
    methods={
        "MAP, random rows": Method(MAP(tol=1e-3), False, FINE),
        "LVB, random rows": Method(LANCZOS, False, FINE),
        "G-KL": Method(GaussianKL(tol=0.1), True, FINE, slack=1.0),
        "LVB": Method(LANCZOS, True, FINE),
    },
)
QUICK = Plan(
    *(32, 50, 100, 25, 1),
    methods={
        "G-KL, 25 per step": Method(GaussianKL(tol=0.1), True, 25),
        "LVB, 25 per step": Method(LocalBound(tol=0.1), True, 25),
        "MAP, random rows": Method(MAP(tol=1e-2), False, 25),
        "LVB, random rows": Method(LocalBound(tol=0.1), False, 25),
    },
)


def filters_of(shape: tuple[int, ...]) -> tuple[list[Any], list[Laplace]]:
    """Differences, fine wavelets and coarse wavelets with their priors; the last are half full, so they are dense."""
    wavelets = wavelet_transform(shape)
    coarse = wavelets.shape[0] // 16
    filters = [finite_differences(shape), wavelets[coarse:], wavelets[:coarse].toarray()]
    return filters, [Laplace(scale=0.1), Laplace(scale=0.14), Laplace(scale=0.14)]


def load_images(path: Path | None, plan: Plan) -> Array:
    """Images of the plan's side, grey values in [−1, 1], shape (n, side, side)."""
    if path is None:
        return np.array([dead_leaves(seed, plan.side) for seed in range(plan.images)])
    with np.load(path, allow_pickle=False) as file:
        grey = file["images"][: plan.images].astype(float)
    block = grey.shape[1] // plan.side
    grey = grey.reshape(len(grey), plan.side, block, plan.side, block).mean(axis=(2, 4))
    return grey / 127.5 - 1.0


def dead_leaves(seed: int, side: int, leaves: int = 60) -> Array:
    """Discs of random size and grey value, one over the other: edges and flat regions as in natural images."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:side, :side] / side
    image = np.full((side, side), rng.uniform(-1.0, 1.0))
    for _ in range(leaves):
        centre, radius = rng.random(2), 0.04 / (0.1 + 0.9 * rng.random()) ** 1.2
        inside = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 < radius**2
        image[inside] = rng.uniform(-1.0, 1.0) + 0.1 * (rows - columns)[inside]
    return np.clip(image, -1.0, 1.0)


def measured(image: Array, method: Method, seed: int, plan: Plan, partial: Path) -> Run:
    """Numbers of measurements, errors ‖mean − image‖, processor seconds per fit, and the means that are shown."""
    truth = image.ravel()
    filters, priors = filters_of(image.shape)
    design = SequentialDesign(filters, priors, NOISE, engine=method.engine, slack=method.slack)
    state = recalled(partial) if partial.exists() else _nothing(len(truth))
    if len(state["y"]):
        design.observe(state["M"], state["y"])
    while len(state["y"]) < plan.last:
        rng = np.random.default_rng([seed, len(state["y"])])
        rows = _next(design, method, plan, rng)
        design.observe(rows, rows @ truth + np.sqrt(NOISE) * rng.standard_normal(len(rows)))
        state = _recorded(state, design, truth, method, plan)
        if method.step > FINE or len(state["counts"]) % OFTEN == 0:
            keep(partial, state)
    partial.unlink(missing_ok=True)
    return {name: state[name] for name in KEPT}


def _nothing(dim: int) -> Run:
    empty, square = np.zeros(0), np.zeros((0, dim))
    return {"M": square, "y": empty, "means": square} | dict.fromkeys(
        ("counts", "errors", "seconds", "shown_counts"), empty
    )


def _next(design: SequentialDesign, method: Method, plan: Plan, rng: np.random.Generator) -> Array:
    count = len(design.observations)
    if count == 0:
        return unit_rows(rng, plan.first, design.dim)
    step = min(method.step, plan.last - count)
    return _fitted(design).suggest(step) if method.designs else unit_rows(rng, step, design.dim)


def _fitted(design: SequentialDesign) -> SequentialDesign:
    """With its posterior; seven outer loops, as in the source, need not converge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        design.posterior  # noqa: B018
    return design


def _recorded(state: Run, design: SequentialDesign, truth: Array, method: Method, plan: Plan) -> Run:
    """The state after new measurements, with the error where it is asked for."""
    count = len(design.observations)
    state = state | {"M": design.measurements, "y": design.observations}
    # the first number of measurements at or beyond each multiple
    passed = (count - plan.first) // plan.shown > (count - plan.first - method.step) // plan.shown
    shown = count == plan.first or passed or count >= plan.last
    if not (shown or method.designs):
        return state
    begun = time.process_time()
    mean = _fitted(design).reconstruction
    seconds = time.process_time() - begun
    for name, value in (("counts", count), ("errors", np.linalg.norm(mean - truth)), ("seconds", seconds)):
        state[name] = np.append(state[name], value)
    if shown:
        state["shown_counts"] = np.append(state["shown_counts"], count)
        state["means"] = np.concatenate([state["means"], mean[None]])
    return state


class Shelf(NamedTuple):
    """Where the runs of a plan are kept."""

    folder: Path
    plan: Plan
    images: Array
    tag: str

    def key(self, label: str, number: int) -> str:
        return f"image_{self.tag}_{label}_{number}"

    def partial(self, label: str, number: int) -> Path:
        return named(self.folder, f"{self.key(label, number)}_partial")

    def there(self) -> dict[str, dict[int, Run]]:
        """By method and image the runs that are finished, and those that have begun as far as they are."""
        found: dict[str, dict[int, Run]] = {}
        for label in self.plan.methods:
            for number in range(len(self.images)):
                for path in (named(self.folder, self.key(label, number)), self.partial(label, number)):
                    if path.exists():
                        found.setdefault(label, {})[number] = recalled(path)
                        break
        return found


def shelf(target: Path, plan: Plan, data: str | os.PathLike[str] | None, quick: bool) -> Shelf:
    """The images and the runs that belong to them; `data` names the folder with the images."""
    path = data_file(target, data, "images_64.npz")
    size = "quick" if quick else "full" if plan.side == FULL.side else f"{plan.side}"
    tag = f"{size}_{'made' if path is None else 'read'}"
    return Shelf(target, plan, load_images(path, plan), tag)


def all_runs(kept: Shelf, report: Callable[[], Any]) -> None:
    """Every run that is not there yet, those of many rows per step first; `report` is called after each."""
    jobs = [(label, number) for number in range(len(kept.images)) for label in kept.plan.methods]
    for label, number in each("image design", sorted(jobs, key=lambda job: kept.plan.methods[job[0]].step == FINE)):
        if is_kept(kept.folder, key := kept.key(label, number)):
            continue
        method, partial = kept.plan.methods[label], kept.partial(label, number)
        keep(named(kept.folder, key), measured(kept.images[number], method, number, kept.plan, partial))
        report()


def measure(
    folder: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
    label: str = "G-KL, full",
    images: Iterable[int] = range(16),
) -> None:
    """The runs of one method alone, image by image; the pages of both figures then show them."""
    kept = shelf(Path(folder), FULL, data, quick=False)
    for number in images:
        if not is_kept(kept.folder, key := kept.key(label, number)):
            method, partial = kept.plan.methods[label], kept.partial(label, number)
            keep(named(kept.folder, key), measured(kept.images[number], method, number, kept.plan, partial))


def average(runs: dict[int, Run], name: str = "errors") -> tuple[Array, Array, Array, Array]:
    """By number of measurements: the number, mean and standard error over the images, and how many images."""
    counts = np.unique(np.concatenate([run["counts"] for run in runs.values()]))
    values = [[run[name][run["counts"] == count] for run in runs.values()] for count in counts]
    at = [np.concatenate(own) for own in values]
    spread = [float(own.std(ddof=1)) / np.sqrt(len(own)) if len(own) > 1 else 0.0 for own in at]
    return counts, np.array([own.mean() for own in at]), np.array(spread), np.array([len(own) for own in at])
