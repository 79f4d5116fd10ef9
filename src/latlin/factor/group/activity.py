"""Which factor acts in which view, and how much of the view it explains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.linalg import Array


@dataclass(frozen=True)
class FactorActivity:
    """Views × factors.

    Attributes
    ----------
    views : tuple
        Names of the views.
    share : ndarray of shape (views, factors)
        Share of the view's variance that the factor explains.
    signal : ndarray of shape (views, factors)
        Energy of the mean loadings over the sum of their posterior variances.
    active : ndarray of bool of shape (views, factors)
        Where the signal is above 1: the view needs the factor.

    Examples
    --------
    >>> activity = FactorActivity(("a", "b"), np.array([[0.5, 0.2], [0.3, 0.0]]), np.array([[9.0, 5.0], [8.0, 0.0]]))
    >>> activity.n_shared, activity.n_private
    (1, 1)
    >>> print(activity)
    a     50.0%  20.0%
    b     30.0%    ·
    """

    views: tuple[Any, ...]
    share: Array
    signal: Array

    @property
    def active(self) -> NDArray[np.bool_]:
        return self.signal > 1.0

    @property
    def n_shared(self) -> int:
        """Factors that are active in at least two views."""
        return int((self.active.sum(axis=0) >= 2).sum())

    @property
    def n_private(self) -> int:
        """Factors that are active in one view only."""
        return int((self.active.sum(axis=0) == 1).sum())

    def __str__(self) -> str:
        width = max(5, *(len(str(name)) for name in self.views))
        lines = []
        for name, share, active in zip(self.views, self.share, self.active, strict=True):
            cells = [f"{100 * s:6.1f}%" if on else "   ·   " for s, on in zip(share, active, strict=True)]
            lines.append(f"{name!s:<{width}}{''.join(cells)}".rstrip())
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> Any:
        """A heat map of the shares, a cross where a factor is not active; returns the axes."""
        if ax is None:
            try:
                from matplotlib import pyplot
            except ImportError as error:
                raise ImportError("plot_activity needs matplotlib: install latlin[plot]") from error
            _, ax = pyplot.subplots(layout="constrained")
        image = ax.imshow(100.0 * self.share, aspect="auto", cmap="viridis", vmin=0.0)
        ax.figure.colorbar(image, ax=ax, label="variance explained, %")
        row, column = np.nonzero(~self.active)
        ax.plot(column, row, "x", color="0.6", markersize=4)
        ax.set_yticks(range(len(self.views)), [str(name) for name in self.views])
        ax.set_xticks(range(self.share.shape[1]))
        ax.set_xlabel("factor")
        ax.set_ylabel("view")
        return ax
