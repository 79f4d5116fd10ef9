"""Anderson mixing: extrapolate a fixed-point iteration x ← F(x) from its last residuals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class AndersonMixing:
    """Propose the next iterate from up to `memory` past pairs (x, F(x)).

    With residuals f = F(x) − x and differences ΔF, ΔX of the last pairs, solve min_θ ‖f − ΔF θ‖ and propose
    x + f − (ΔX + ΔF) θ (type II). The history is the only state; `forget` empties it.
    """

    def __init__(self, memory: int = 8) -> None:
        self.memory = memory
        self._points: list[NDArray[np.float64]] = []
        self._residuals: list[NDArray[np.float64]] = []

    def forget(self) -> None:
        self._points.clear()
        self._residuals.clear()

    @property
    def depth(self) -> int:
        """How many past pairs the next proposal can use."""
        return len(self._points)

    def propose(self, x: NDArray[np.float64], image: NDArray[np.float64]) -> NDArray[np.float64]:
        """Remember (x, F(x) = image) and return the extrapolated next iterate."""
        residual = image - x
        self._points.append(x)
        self._residuals.append(residual)
        if len(self._points) > self.memory + 1:
            del self._points[0], self._residuals[0]
        if len(self._points) == 1:
            return image
        dx = np.diff(np.stack(self._points, axis=1), axis=1)
        df = np.diff(np.stack(self._residuals, axis=1), axis=1)
        theta = np.linalg.lstsq(df, residual, rcond=1e-10)[0]
        return image - (dx + df) @ theta
