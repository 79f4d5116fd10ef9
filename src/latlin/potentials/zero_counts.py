"""What families around a count family share: the base, its chance of a zero, and its parameters.

The count family is Poisson, NegativeBinomial, Binomial or BetaBinomial. Its free parameters are free here too, and
`replace` hands them on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from latlin.potentials.base import Array, Derivatives, Potential
from latlin.potentials.checks import common_length, fractions
from latlin.potentials.predictive import CountPredictive, Predictive
from latlin.potentials.ranges import Range, UnitInterval

#: x below which the chance of a positive count is a line in x on the log scale
FAR_LEFT = -600.0


class AroundCounts(Potential):
    """A count family with a chance of zero of its own."""

    parameters = ("base", "probability")
    arrays = ("probability",)

    base: Potential
    probability: Array

    def __init__(self, base: Potential, probability: ArrayLike) -> None:
        if not hasattr(base, "_conditional_cdf") or not hasattr(base, "_conditional_moments"):
            raise ValueError(f"base must be a family of counts, such as Poisson(y), got {base!r:.80}")
        self._store(base=base, probability=fractions("probability", probability))
        common_length(probability=self.probability, base=np.empty(base.size) if base.size else np.empty(()))
        object.__setattr__(self, "observation", base.observation)

    @property
    def counts(self) -> Array:
        """The stored counts."""
        return np.asarray(getattr(self.base, self.base.observation[0]))

    @property
    def free(self) -> Mapping[str, Range]:  # type: ignore[override]
        return MappingProxyType({"probability": UnitInterval(), **self.base.free})

    @property
    def size(self) -> int | None:
        return self.base.size or super().size

    def select(self, index: ArrayLike | slice) -> Self:
        block = super().select(index)
        object.__setattr__(block, "base", self.base.select(index))
        return block

    def replace(self, **values: Any) -> Self:
        own = {name: values.pop(name) for name in list(values) if name in self.parameters}
        base = own.get("base", self.base)
        return type(self)(base.replace(**values) if values else base, own.get("probability", self.probability))

    def value_of(self, name: str) -> Any:
        return self.probability if name == "probability" else self.base.value_of(name)

    def _zero(self) -> Potential:
        """The base with a count of zero at every site."""
        return self.base.observe(np.zeros(self.base.size or ()))

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        return self.base.regions()

    def _split(self, m: Array, one: Callable[[Any], Any], other: Callable[[Any], Any]) -> Array:
        """Three arrays over sites: `one` of the sites with a count of zero, `other` of the rest."""
        zero = np.broadcast_to(self.counts == 0, m.shape)
        out = np.empty((3, m.size))
        for some, ask in ((np.flatnonzero(zero), one), (np.flatnonzero(~zero), other)):
            if some.size:
                out[:, some] = ask(some)
        return out

    def _sharpness(self) -> Array:
        return self.base._sharpness()

    def _base_moments(self, m: Array, v: Array) -> tuple[Array, Array]:
        """⟨y⟩ and ⟨y²⟩ of the base under N(x|m, v)."""
        described = self.base._predictive(m, v, m.shape)
        with np.errstate(over="ignore"):
            return described.mean, described.variance + described.mean**2

    def _described(self, m: Array, v: Array, shape: tuple[int, ...], first: Array, second: Array) -> Predictive:
        """New counts with these two moments."""
        with np.errstate(over="ignore", invalid="ignore"):
            spread = np.where(np.isinf(second), np.inf, np.maximum(second - first * first, 0.0))
        return CountPredictive(self, m, v, shape, first, spread, getattr(self.base, "trials", np.inf))


def chain(derivatives: Derivatives, one: Array, two: Array, three: Array) -> Derivatives:
    """Derivatives of f(b(x)) from those of b and f′, f″, f‴ at b."""
    b1, b2, b3 = derivatives
    return Derivatives(one * b1, one * b2 + two * b1**2, one * b3 + 3 * two * b1 * b2 + three * b1**3)
