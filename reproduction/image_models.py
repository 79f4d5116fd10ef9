"""Part (d) of the first question of Lau (2020): factor analysis, ICA and mixtures on the same images.

The document reasons without a run that of factor analysis, ICA and mixtures of Gaussians only ICA
suits images that are sums of features, each on or off. Here all three, and the binary factors of that document, are
fitted to 400 images and asked for the log density of 2,000 others, in nat per image, and for the features: how many of
the eight are within a cosine of 0.95 of a loading, a source's image or a cluster's mean, whatever its sign and size.
The numbers of factors and sources are eight; the mixture may use up to 40 clusters. The bound of binary factors and the
value of ICA are bounds on their log densities, those of the others are exact. The ICA of that document, and of the
library, has sources with heavier tails than a Gaussian; FastICA of scikit-learn, which takes sources of either kind and
has no density, tests what that means here.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import FastICA

from latlin.factor import BinaryFactorAnalysis, FactorAnalysis, NoisyICA
from latlin.mixture import BayesianGaussianMixture
from reproduction.arrays import Array
from reproduction.binary_features import features, images
from reproduction.output import made, new_figure
from reproduction.page import Claim, Picture, Table, at_size, drawn, verdict, write_page
from reproduction.resume import each, remembered

CLOSE = 0.95
MODELS: dict[str, Callable[[int, bool], Any]] = {
    "factor analysis": lambda seed, quick: FactorAnalysis(8),
    "independent components": lambda seed, quick: NoisyICA(8, random_state=seed, max_iter=20 if quick else 1000),
    "FastICA": lambda seed, quick: FastICA(8, random_state=seed, max_iter=1000),
    "mixture of Gaussians": lambda seed, quick: BayesianGaussianMixture(3 if quick else 40, random_state=seed),
    "binary factors": lambda seed, quick: BinaryFactorAnalysis(
        8 if quick else 12, random_state=seed, n_init=1 if quick else 4
    ),
}


def shown_by(model: Any) -> Array:
    """The images that a model is made of, one per row: loadings, columns of the mixing matrix, means of clusters."""
    if isinstance(model, BayesianGaussianMixture):
        return np.asarray(model.means_)
    return np.asarray(model.mixing_).T if hasattr(model, "mixing_") else np.asarray(model.components_)


def n_recovered(pictures: Array) -> int:
    """How many of the eight features some picture shows, up to its sign and size.

    >>> n_recovered(-2.0 * features()[:3])
    3
    """
    sizes = np.maximum(np.linalg.norm(pictures, axis=1), 1e-300)
    own = features() / np.linalg.norm(features(), axis=1, keepdims=True)
    return int((np.abs(own @ (pictures / sizes[:, None]).T).max(axis=1, initial=0.0) > CLOSE).sum())


def compare(seed: int, quick: bool) -> Array:
    """Held-out log density, features recovered and seconds of every model, shape (models, 3)."""
    rows, held_out = images(seed, 100 if quick else 400)[0], images(1000 + seed, 500 if quick else 2000)[0]
    found = []
    for build in MODELS.values():
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = build(seed, quick).fit(rows)
        seconds = time.perf_counter() - began
        score = float(np.mean(model.score_samples(held_out))) if hasattr(model, "score_samples") else np.nan
        found.append((score, float(n_recovered(shown_by(model))), seconds))
    return np.array(found)


def run(folder: str | os.PathLike[str], quick: bool = False) -> list[Path]:
    """The table, the figure and the page."""
    target, seeds = made(folder), 1 if quick else 2
    runs = [
        remembered(target, f"image_models{'_quick' * quick}_{seed}", lambda s=seed: {"all": compare(s, quick)})["all"]  # type: ignore[misc]
        for seed in each("four models of images", range(seeds))
    ]
    values = np.array(runs)
    rows = [
        (name, *map(float, (v[:, 0].mean(), v[:, 1].mean(), v[:, 1].min(), v[:, 2].mean())))
        for name, v in zip(MODELS, values.transpose(1, 0, 2), strict=True)
    ]
    columns = ["model", "held-out log density", "features recovered, mean", "features recovered, least", "seconds"]
    table = Table("image_models", f"Means over {seeds} sets of images", columns, rows)
    return write_page(target, "image_models", at_size(claims(values), quick), [table], [_draw(target, values, quick)])


def claims(values: Array) -> list[Claim]:
    """What the document expects of each model."""
    score = dict(zip(MODELS, values[:, :, 0].mean(axis=0), strict=True))
    found = dict(zip(MODELS, values[:, :, 1].mean(axis=0), strict=True))
    best = score["binary factors"]

    def ours(name: str) -> str:
        return f"{found[name]:.1f} of 8 features, {best - score[name]:.1f} nat per image below binary factors"

    by_either = f'row "FastICA" ({found["FastICA"]:.1f} of 8 features)'
    why = "sources here have heavier tails than a Gaussian, things that are on or off have lighter ones: "
    why += verdict(*(([by_either], []) if found["FastICA"] > 6 else ([], [by_either])))
    fa, ica, mixture = "factor analysis", "independent components", "mixture of Gaussians"
    return [
        Claim(fa, "not a good model", ours(fa), bool(found[fa] < 4 and score[fa] < best)),
        Claim(ica, "does a good job", ours(ica), bool(found[ica] > 6 and score[ica] > score[fa]), why),
        Claim(mixture, "a poor model", ours(mixture), bool(found[mixture] < 4 or score[mixture] < score[ica])),
    ]


def _draw(target: Path, values: Array, quick: bool) -> Picture:
    figure = new_figure("four models", 8.0, 3.0)
    for axes, j, title in zip(figure.subplots(1, 2), (0, 1), ("held-out log density", "features of 8"), strict=True):
        axes.barh(list(MODELS), values[:, :, j].mean(axis=0), color="#4c78a8")
        axes.invert_yaxis()
        axes.set_title(title)
        axes.label_outer()
    alt = "Held-out log density and recovered features of factor analysis, ICA, a mixture and binary factors"
    return drawn(figure, target / "image_models.png", alt, quick)
