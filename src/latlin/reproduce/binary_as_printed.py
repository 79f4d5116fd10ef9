"""The programs of Lau (2020) for binary factors, step by step as they are printed: §1.5 and §3.2.

They differ from the fit of `latlin.factor` in how they start (features, probabilities and activations by chance, and
sweeps over the latents before anything is learnt) and, with relevances, in a variance a factor instead of a joint
covariance. Nothing is mended here: the runs test whether the printed results are those of the printed programs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latlin.factor.binary.kernels import sweep_rows

Array = NDArray[np.float64]
SWEEPS, EDGE = 31, 1e-15
#: α at the start, and from where a factor counts as shut off
RELEVANCE, SHUT = 120.0, 1200.0


class Printed(NamedTuple):
    """Features, and the number of factors that are not shut off after the last iteration."""

    features: Array
    active: int


def learnt(x: Array, size: int, iterations: int, rng: np.random.Generator) -> Array:
    """`learn_bin_factors` of §1.5: features by maximum likelihood, σ = 1 at the start."""
    means, features, probability = (
        0.25 + 0.5 * rng.random(shape) for shape in ((len(x), size), (size, x.shape[1]), size)
    )
    noise = 1.0
    for _ in range(iterations):
        means = _swept(x, means, features, np.square(features).sum(axis=1), probability, noise)
        second = means.T @ means
        second[np.diag_indices(size)] = means.sum(axis=0)
        features = np.asarray(np.linalg.lstsq(second, means.T @ x, rcond=None)[0], dtype=float)
        noise = _noise(x, means, features, np.square(features).sum(axis=1))
        probability = _probability(means)
    return features


def learnt_with_relevances(
    x: Array, size: int, iterations: int, rng: np.random.Generator, scale: float | None = None
) -> Printed:
    """`learn_bin_factors` of §3.2; σ starts at `scale`, which is uniform on (0, 1) there."""
    dim = x.shape[1]
    means, features = 0.2 + 0.6 * rng.random((len(x), size)), 0.2 + 0.6 * rng.random((size, dim))
    probability, drawn = 0.2 + 0.5 * rng.random(size), rng.random()
    noise, relevance = (drawn if scale is None else scale) ** 2, np.full(size, RELEVANCE)
    features, square = _moments(x, means, features, relevance, noise)
    for _ in range(iterations):
        means = _swept(x, means, features, square, probability, noise)
        features, square = _moments(x, means, features, relevance, noise)
        noise, probability = _noise(x, means, features, square), _probability(means)
        # (24): α_i = D/⟨μ_iᵀμ_i⟩
        relevance = dim / square
    return Printed(features, int((relevance < SHUT).sum()))


def _moments(x: Array, means: Array, features: Array, relevance: Array, noise: float) -> tuple[Array, Array]:
    """(31)–(33): five passes over the features, one after the other, and ⟨μ_iᵀμ_i⟩."""
    features, together, product = features.copy(), means.T @ means, means.T @ x
    variance = 1.0 / (means.sum(axis=0) / noise + relevance)
    for _ in range(5):
        for i in range(len(features)):
            others = together[i] @ features - together[i, i] * features[i]
            features[i] = variance[i] / noise * (product[i] - others)
    return features, x.shape[1] * variance + np.square(features).sum(axis=1)


def _swept(x: Array, means: Array, features: Array, square: Array, probability: Array, noise: float) -> Array:
    """`mean_field`: sweeps of (10) and (35), at most 31."""
    coupling, means = features @ features.T, means.copy()
    coupling[np.diag_indices(len(square))] = square
    offset = np.log(probability) - np.log1p(-probability) - 0.5 * square / noise
    field = np.ascontiguousarray(x @ features.T) / noise
    sweep_rows(means, field, coupling / noise, offset, np.arange(len(square)), SWEEPS, 0, 1e-12)
    return np.clip(means, EDGE, 1.0 - EDGE)


def _noise(x: Array, means: Array, features: Array, square: Array) -> float:
    """(36): σ² = ⟨‖X − Sμ‖²⟩/ND."""
    rest = np.square(x - means @ features).sum()
    # ⟨s²⟩⟨μᵀμ⟩ − λ²MᵀM, summed over rows
    spread = means.sum(axis=0) @ square - np.square(means).sum(axis=0) @ np.square(features).sum(axis=1)
    return float(rest + spread) / x.size


def _probability(means: Array) -> Array:
    return np.clip(means.mean(axis=0), 1e-12, 1.0 - 1e-12)
