"""Posteriors on disk: the density, the evidence and how it came about, but not the model, which holds the data."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from latlin.inference.model import LatentLinearModel


class StoredModel(LatentLinearModel):
    """In the place of a model whose training data were not stored: its dimension, and nothing else."""

    def __init__(self, dim: int) -> None:
        object.__setattr__(self, "dim", dim)

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("gaussians", "sites"):
            raise ValueError(
                "this posterior was loaded from a file, which has no training data: fit again to use them, or give it "
                "its model, dataclasses.replace(posterior, model=model)"
            )
        raise AttributeError(f"StoredModel has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"StoredModel(dim={self.dim})"


def check_density(density: Any, dim: Any) -> None:
    """A density from a file is over `dim` coordinates, and it answers."""
    if not isinstance(dim, int) or np.shape(density.mean) != (dim,):
        raise ValueError(f"a stored density has dimension {np.shape(density.mean)}, the model {dim}")
    if np.shape(density.variance) != (dim,) or density.project(np.zeros((1, dim))).mean.shape != (1,):
        raise ValueError("a stored density does not answer")
