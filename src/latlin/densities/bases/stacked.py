"""Different families for different coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latlin.densities.bases.base import Array, Base, Characteristic
from latlin.numerics.stored import storable


@storable
class Stacked(Base):
    """The first coordinates of one family, the next of another.

    Parameters
    ----------
    parts : sequence of (Base, int)
        Each base with the number of coordinates it serves. The shapes are fixed.
    """

    name = "stacked"

    def __init__(self, parts: Sequence[tuple[Base, int]]) -> None:
        for base, count in parts:
            if base.rows not in (1, count):
                raise ValueError(f"a base of {base.rows} shapes cannot serve {count} coordinates")
        self.parts = tuple(parts)
        ends = np.cumsum([0, *(count for _, count in parts)])
        self._spans = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        self.rows = int(ends[-1])
        self.free = np.zeros((self.rows, 0))
        self.has_gaussian = all(base.has_gaussian for base, _ in parts)  # type: ignore[misc]

    def logpdf(self, v: ArrayLike) -> Array:
        v = np.asarray(v, float)
        return np.concatenate([base.logpdf(v[..., span]) for base, span in self._each()], axis=-1)

    def cdf(self, v: ArrayLike) -> Array:
        v = np.asarray(v, float)
        return np.concatenate([base.cdf(v[..., span]) for base, span in self._each()], axis=-1)

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return np.concatenate([base.sample((*shape[:-1], count), rng) for base, count in self.parts], axis=-1)

    def entropy(self) -> Array:
        return self._rows([base.entropy() for base, _ in self.parts])

    def characteristic(self, s: Array) -> Characteristic:
        found = [base.characteristic(s) for base, _ in self.parts]
        return Characteristic(self._rows([c.value for c in found]), self._rows([c.slope for c in found]))

    def third_and_fourth(self) -> tuple[Array, Array]:
        found = [base.third_and_fourth() for base, _ in self.parts]
        return self._rows([pair[0] for pair in found]), self._rows([pair[1] for pair in found])

    def reach(self) -> Array:
        return self._rows([base.reach() for base, _ in self.parts])

    def cutoff(self) -> float:
        return max(base.cutoff() for base, _ in self.parts)

    def _each(self) -> list[tuple[Base, slice]]:
        return [(base, span) for (base, _), span in zip(self.parts, self._spans, strict=True)]

    def _rows(self, arrays: list[Any]) -> Any:
        """One row per coordinate."""
        spread = [np.broadcast_to(a, (count, *a.shape[1:])) for a, (_, count) in zip(arrays, self.parts, strict=True)]
        return np.concatenate(spread)
