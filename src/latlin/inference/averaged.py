"""A model whose hyperparameters are integrated out: a weighted sum of latent linear models.

    p(w) ∝ Σ_k weight_k p_k(w),   log Z = log Σ_k weight_k Z_k

Each p_k is a product of factors with its own constants, so the weights are those of a quadrature rule times the prior
of the hyperparameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from latlin.inference.model import IN_BLOCKS, LatentLinearModel, Model
from latlin.numerics.arrays import Array


class AveragedModel(LatentLinearModel):
    """Several models of the same w with weights; `gaussians` and `sites` are those of the middle one.

    Parameters
    ----------
    parts : sequence of LatentLinearModel
    log_weights : array of shape (K,)
    middle : int
        The part that stands for all where one model is asked for.
    """

    parts: tuple[Model, ...]
    log_weights: Array
    centre: Model

    def __init__(self, parts: Sequence[Model], log_weights: ArrayLike, middle: int) -> None:
        weights = np.asarray(log_weights, float)
        if weights.shape != (len(parts),):
            raise ValueError(f"log_weights must hold one number per model, got shape {weights.shape} for {len(parts)}")
        # whatever a model has, this has from its middle part
        for name, value in vars(parts[middle]).items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "dim", parts[middle].dim)
        object.__setattr__(self, "parts", tuple(parts))
        object.__setattr__(self, "centre", parts[middle])
        object.__setattr__(self, "log_weights", weights)

    def __getattr__(self, name: str) -> NoReturn:
        # parts whose rows are in blocks have no factors here
        raise ValueError(IN_BLOCKS) if name in ("gaussians", "sites") else AttributeError(name)

    def __repr__(self) -> str:
        return f"AveragedModel({len(self.parts)} x {self.parts[0]!r})"
