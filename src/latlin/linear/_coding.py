"""From labels to the numbers of a likelihood: small objects that can travel to where the labels are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.arrays import Array


class Coding(Protocol):
    """Observations of a block as numbers."""

    def __call__(self, y: NDArray[Any]) -> Array: ...


@dataclass(frozen=True)
class Numbers:
    """Numbers as they are."""

    def __call__(self, y: NDArray[Any]) -> Array:
        return np.asarray(y, float)


@dataclass(frozen=True)
class Positive:
    """1 for one label, 0 for the others."""

    label: Any

    def __call__(self, y: NDArray[Any]) -> Array:
        return (y == self.label).astype(float)


@dataclass(frozen=True)
class Place:
    """Place of each label among the classes."""

    classes: NDArray[Any]

    def __call__(self, y: NDArray[Any]) -> Array:
        return class_index(np.asarray(y), self.classes).astype(float)


def class_index(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Place of each label among the classes."""
    order = np.argsort(classes)
    place = order[np.minimum(np.searchsorted(classes, labels, sorter=order), len(classes) - 1)]
    if np.any(classes[place] != labels):
        raise ValueError(f"y has labels that were not in the training data, which had {classes.tolist()}")
    return place
