"""The experiment behind figures 5.3 and 5.4 of 002_71af9439e55c646f: natural images measured by sequential design.

Grey values in [−1, 1]; Laplace priors on finite differences (τ = 0.1) and wavelet responses (τ = 0.14); unit-norm
measurements with noise variance 0.005, a hundred random ones at first and three designed ones a step. Images come from
`images_64.npz` (an array `images` of shape (n, 64, 64), bytes) in a folder of your own; without it they are generated.
A run keeps its measurements in the folder as it goes and continues from there.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.design import SequentialDesign, finite_differences, wavelet_transform
from latlin.engines import MAP, GaussianKL, LocalBound
from latlin.numerics.alerts import ConvergenceWarning
from latlin.potentials import Laplace
from latlin.reproduce.figure_5_2 import unit_rows
from latlin.reproduce.resume import data_file, each, keep, recalled, remembered

Array = NDArray[np.float64]
NOISE = 0.005
PRIORS = (Laplace(scale=0.1), Laplace(scale=0.14))


class Method(NamedTuple):
    """An engine, whether it designs, and whether every step is worth a fit (or only those that are shown)."""

    engine: Any
    designs: bool
    every: bool


class Plan(NamedTuple):
    """Side of the images, measurements at first, a step and at last, distance of those shown, and how many images."""

    side: int
    first: int
    step: int
    last: int
    shown: int
    images: int
    methods: dict[str, Method]


FULL = Plan(
    *(64, 100, 3, 2000, 300, 16),
    methods={
        "G-KL": Method(GaussianKL(covariance="chevron", rank=80, tol=0.1), True, True),
        "LVB": Method(LocalBound(variances="lanczos", rank=80, tol=1e-2, max_iter=7), True, True),
        "LVB, random rows": Method(LocalBound(variances="lanczos", rank=80, tol=1e-2, max_iter=7), False, False),
        "MAP, random rows": Method(MAP(tol=1e-3), False, False),
    },
)
QUICK = Plan(
    *(32, 50, 25, 100, 25, 1),
    methods={
        "G-KL": Method(GaussianKL(tol=0.1), True, True),
        "LVB": Method(LocalBound(tol=0.1), True, True),
        "LVB, random rows": Method(LocalBound(tol=0.1), False, False),
    },
)


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


def measured(image: Array, label: str, seed: int, plan: Plan, partial: Path) -> dict[str, Array]:
    """Numbers of measurements, errors ‖mean − image‖ and the means that are shown."""
    method, truth = plan.methods[label], image.ravel()
    filters = [finite_differences(image.shape), wavelet_transform(image.shape)]
    design = SequentialDesign(filters, PRIORS, NOISE, engine=method.engine)
    state = recalled(partial) if partial.exists() else _nothing(len(truth))
    if len(state["y"]):
        design.observe(state["M"], state["y"])
    while len(state["y"]) < plan.last:
        count = len(state["y"])
        rng = np.random.default_rng([seed, count])
        rows = _next(design, method, plan, rng)
        values = rows @ truth + np.sqrt(NOISE) * rng.standard_normal(len(rows))
        design.observe(rows, values)
        state = _recorded(state, design, truth, method, plan)
        if method.every:
            keep(partial, state)
    partial.unlink(missing_ok=True)
    return {name: state[name] for name in ("counts", "errors", "shown_counts", "means")}


def _nothing(dim: int) -> dict[str, Array]:
    empty = np.zeros(0)
    square = np.zeros((0, dim))
    return {"M": square, "y": empty, "counts": empty, "errors": empty, "shown_counts": empty, "means": square}


def _next(design: SequentialDesign, method: Method, plan: Plan, rng: np.random.Generator) -> Array:
    count = len(design.observations)
    if count == 0:
        return unit_rows(rng, plan.first, design.dim)
    step = min(plan.step, plan.last - count)
    return design.suggest(step) if method.designs else unit_rows(rng, step, design.dim)


def _recorded(
    state: dict[str, Array], design: SequentialDesign, truth: Array, method: Method, plan: Plan
) -> dict[str, Array]:
    """The state after new measurements, with the error where it is asked for."""
    count = len(design.observations)
    state = state | {"M": design.measurements, "y": design.observations}
    # the first number of measurements at or beyond each multiple
    passed = (count - plan.first) // plan.shown > (count - plan.first - plan.step) // plan.shown
    shown = count == plan.first or passed or count >= plan.last
    if not (shown or method.every):
        return state
    with warnings.catch_warnings():
        # seven outer loops, as in the source, need not converge
        warnings.simplefilter("ignore", ConvergenceWarning)
        mean = design.reconstruction
    state["counts"] = np.append(state["counts"], count)
    state["errors"] = np.append(state["errors"], np.linalg.norm(mean - truth))
    if shown:
        state["shown_counts"] = np.append(state["shown_counts"], count)
        state["means"] = np.concatenate([state["means"], mean[None]])
    return state


def all_runs(
    target: Path, plan: Plan, data: str | os.PathLike[str] | None, tag: str
) -> tuple[Array, dict[str, list[dict[str, Array]]]]:
    """The images, and by method one run an image."""
    path = data_file(target, data, "images_64.npz")
    images = load_images(path, plan)
    jobs = [(label, number) for number in range(len(images)) for label in plan.methods]
    found: dict[str, list[dict[str, Array]]] = {label: [] for label in plan.methods}
    source = "made" if path is None else "read"
    for label, number in each("image design", jobs):
        key = f"image_{tag}_{source}_{label}_{number}".replace(" ", "_").replace(",", "")
        partial = target / "runs" / f"{key}_partial.npz"
        found[label].append(
            remembered(
                target,
                key,
                lambda b=label, n=number, p=partial: measured(images[n], b, n, plan, p),  # type: ignore[misc]
            )
        )
    return images, found
