"""Heywood cases: a noise variance that the likelihood drives to zero."""

from __future__ import annotations

import warnings

import numpy as np

from latlin.numerics.linalg import Array

NEAR = 10.0


class HeywoodWarning(UserWarning):
    """A noise variance went to its floor: the factors reproduce that feature without error."""


def heywood_features(noise: Array, variance: Array, floor: float) -> np.ndarray:
    """Indices of the features whose noise variance is within a factor of ten of its floor."""
    return np.flatnonzero(noise <= NEAR * floor * variance)


def warn_heywood(features: np.ndarray, noise: Array) -> None:
    """Say which features, and what to do."""
    if len(features) == 0:
        return
    shown = ", ".join(str(i) for i in features[:10]) + (", …" if len(features) > 10 else "")
    text = (
        f"Heywood case: the noise variance of feature(s) {shown} went to its floor "
        f"({noise[features].min():.2g}); use fewer components, more data, or noise='isotropic'"
    )
    warnings.warn(text, HeywoodWarning, stacklevel=4)
