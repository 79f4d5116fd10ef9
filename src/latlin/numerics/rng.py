"""One way from `random_state` to a generator, and quasi-random points."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import stdtrit

from latlin.numerics.arrays import Array

RandomState = int | np.random.Generator | np.random.RandomState | None


def generator(random_state: RandomState) -> np.random.Generator:
    """A numpy Generator from None, a seed, a Generator (returned as it is) or a RandomState."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**32, size=4, dtype=np.uint64))
    if random_state is None or (isinstance(random_state, int | np.integer) and random_state >= 0):
        return np.random.default_rng(random_state)
    raise ValueError(
        f"random_state must be None, an int of at least 0, a numpy Generator or a RandomState, got {random_state!r:.80}"
    )


@lru_cache(maxsize=16)
def quasi_random_t(dim: int, count: int, df: float, seed: int) -> Array:
    """Quasi-random points (Owen, 1998), one per row, whose coordinates are independent Student t; not to be changed."""
    from scipy.stats import qmc  # takes long to load: when first needed

    uniform = qmc.Sobol(dim, seed=seed).random(count)
    points = np.asarray(stdtrit(df, np.clip(uniform, 1e-9, 1.0 - 1e-9)))
    points.flags.writeable = False
    return points
