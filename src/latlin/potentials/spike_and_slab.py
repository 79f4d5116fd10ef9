"""A sparse prior: each coefficient is either close to nothing or anything."""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from latlin.potentials.base import Array
from latlin.potentials.checks import fractions, positive, refuse
from latlin.potentials.gaussian_mixture import GaussianMixture
from latlin.potentials.ranges import Positive, UnitInterval


class SpikeAndSlab(GaussianMixture):
    """φ(x) = (1 − probability) N(x | 0, spike²) + probability N(x | 0, slab²).

    Parameters
    ----------
    probability : float or array_like of shape (sites,)
        Chance that a coefficient comes from the slab, strictly between 0 and 1.
    slab : float or array_like of shape (sites,), default 1
        Standard deviation of the slab.
    spike : float or array_like of shape (sites,), default 0.01
        Standard deviation of the spike, smaller than the slab's.

    Examples
    --------
    >>> prior = SpikeAndSlab(0.1)
    >>> prior.tilted_moments([0.1, 2.0], 0.01).mean.round(3).tolist()
    [0.003, 1.98]
    >>> prior.inclusion([0.0, 0.1], 0.01).round(3).tolist()
    [0.011, 0.018]
    """

    parameters: ClassVar[tuple[str, ...]] = ("probability", "slab", "spike")
    free = MappingProxyType({"probability": UnitInterval(start=0.1), "slab": Positive(), "spike": Positive(start=0.01)})

    probability: Array
    slab: Array
    spike: Array

    def __init__(self, probability: ArrayLike, slab: ArrayLike = 1.0, spike: ArrayLike = 0.01) -> None:
        p, wide, narrow = fractions("probability", probability), positive("slab", slab), positive("spike", spike)
        refuse("spike", narrow, narrow >= wide, "numbers below slab")
        p, wide, narrow = np.broadcast_arrays(p, wide, narrow)
        super().__init__(np.stack([1 - p, p], axis=-1), 0.0, np.stack([narrow, wide], axis=-1))
        names = ("probability", "slab", "spike") if p.ndim else ()
        self._store(arrays=(*self.arrays, *names), probability=p, slab=wide, spike=narrow, **self._components_kept())

    def _components_kept(self) -> dict[str, Array]:
        return {name: getattr(self, name) for name in ("weights", "locs", "scales")}

    def inclusion(self, mean: ArrayLike, var: ArrayLike) -> Array:
        """The chance that a coefficient is the slab's, when the rest of the model says it is N(mean, var)."""
        block, (m, v), shape = self._flat(mean=mean, var=var)
        total = v[:, None] + block.scales**2
        logs = np.log(block.weights) - 0.5 * (m[:, None] ** 2 / total + np.log(total))
        return np.asarray(1.0 / (1.0 + np.exp(logs[..., 0] - logs[..., 1]))).reshape(shape)
