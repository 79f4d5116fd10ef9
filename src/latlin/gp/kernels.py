"""Kernels that scikit-learn's algebra lacks: of some columns (additive and product processes), and of a frequency.

Sums of products of squared exponentials and cosines are spectral mixtures (Wilson and Adams 2013).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel, NormalizedKernelMixin, StationaryKernelMixin

from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable_by_arguments


class Columns(Kernel):
    """A kernel of some columns of X; sums and products of such are additive and product processes.

    Parameters
    ----------
    kernel : scikit-learn kernel
        Of the chosen columns; its length scales, if several, are theirs.
    columns : int, str or sequence of these
        Places of the columns, or their names where `names` are given.
    names : sequence of str, optional
        Names of all columns of X.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF, ExpSineSquared
    >>> year = Columns(RBF(10.0), "year", ["year", "dose"])
    >>> dose = Columns(RBF(1.0), "dose", ["year", "dose"])
    >>> X = np.array([[2000.0, 1.0], [2010.0, 1.0]])
    >>> (year + dose)(X).round(3).tolist()
    [[2.0, 1.607], [1.607, 2.0]]
    """

    def __init__(self, kernel: Any, columns: Any, names: Sequence[str] | None = None) -> None:
        self.kernel = kernel
        self.columns = columns
        self.names = names

    def places(self, width: int) -> list[int]:
        """The chosen columns of an X with `width` of them."""
        single = isinstance(self.columns, str) or np.ndim(self.columns) == 0
        chosen = [self.columns] if single else list(self.columns)
        found = [self._place(one) for one in chosen]
        if not found or min(found) < 0 or max(found) >= width:
            raise ValueError(
                f"Columns columns must be places below {width}, the columns of X, got {self.columns!r:.80}"
            )
        return found

    def _place(self, one: Any) -> int:
        if not isinstance(one, str):
            return int(one)
        if self.names is None or one not in list(self.names):
            known = "names= is not given" if self.names is None else f"names= has {', '.join(map(repr, self.names))}"
            raise ValueError(f"Columns columns has {one!r}, but {known}")
        return list(self.names).index(one)

    def _part(self, X: Any) -> Array | None:
        if X is None:
            return None
        rows = np.atleast_2d(np.asarray(X, float))
        return rows[:, self.places(rows.shape[1])]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters, and those of the kernel inside as kernel__….

        Parameters
        ----------
        deep : bool
        """
        own = {"kernel": self.kernel, "columns": self.columns, "names": self.names}
        if deep:
            own |= {f"kernel__{name}": value for name, value in self.kernel.get_params().items()}
        return own

    @property
    def hyperparameters(self) -> list[Hyperparameter]:
        """Those of the kernel inside, as kernel__…."""
        return [
            Hyperparameter(f"kernel__{one.name}", one.value_type, one.bounds, one.n_elements)
            for one in self.kernel.hyperparameters
        ]

    @property
    def theta(self) -> Array:
        """Logarithms of the free parameters."""
        return self.kernel.theta

    @theta.setter
    def theta(self, theta: Array) -> None:
        self.kernel.theta = theta

    @property
    def bounds(self) -> Array:
        """Ends of the free parameters' logarithms."""
        return self.kernel.bounds

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        return self.kernel(self._part(X), self._part(Y), eval_gradient=eval_gradient)

    def diag(self, X: Any) -> Array:
        """Prior variances of the rows of X."""
        return self.kernel.diag(self._part(X))

    def is_stationary(self) -> bool:
        """Whether the kernel inside is."""
        return self.kernel.is_stationary()

    @property
    def requires_vector_input(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Columns):
            return False
        mine, theirs = (one.get_params(deep=False) for one in (self, other))
        return all(np.all(mine[name] == theirs[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Columns({self.kernel!r}, {self.columns!r})"


class Cosine(StationaryKernelMixin, NormalizedKernelMixin, Kernel):
    """k(a, b) = cos(2π fᵀ(a − b)): waves of one frequency, for spectral mixtures Σ c · RBF · Cosine.

    Parameters
    ----------
    frequency : float or array of shape (n_features,)
        f, in cycles per unit of the inputs; a number is that of all columns.
    frequency_bounds : pair of floats or "fixed"
        Evidence has many optima in a frequency: start near one, or raise `n_restarts`.

    Examples
    --------
    >>> Cosine(0.5)(np.array([[0.0], [1.0]])).round(6).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """

    def __init__(self, frequency: Any = 1.0, frequency_bounds: Any = (1e-5, 1e5)) -> None:
        self.frequency = frequency
        self.frequency_bounds = frequency_bounds

    @property
    def hyperparameter_frequency(self) -> Hyperparameter:
        size = np.size(self.frequency)
        return Hyperparameter("frequency", "numeric", self.frequency_bounds, size)

    def angles(self, apart: list[Array]) -> list[Array]:
        """2π f_j (a_j − b_j), one per frequency, from the differences a_j − b_j of the columns."""
        frequency = np.atleast_1d(np.asarray(self.frequency, float))
        if len(frequency) == 1:
            return [2.0 * np.pi * frequency[0] * sum(apart[1:], apart[0])]
        if len(frequency) != len(apart):
            raise ValueError(f"Cosine frequency must have one number per column, {len(apart)}, got {len(frequency)}")
        return [2.0 * np.pi * f * one for f, one in zip(frequency, apart, strict=True)]

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        rows = np.atleast_2d(np.asarray(X, float))
        others = rows if Y is None else np.atleast_2d(np.asarray(Y, float))
        angles = self.angles([rows[:, None, j] - others[None, :, j] for j in range(rows.shape[1])])
        angle = sum(angles[1:], angles[0])
        if not eval_gradient:
            return np.cos(angle)
        if self.hyperparameter_frequency.fixed:
            return np.cos(angle), np.empty((*angle.shape, 0))
        return np.cos(angle), np.stack([-np.sin(angle) * one for one in angles], axis=-1)

    def __repr__(self) -> str:
        return f"Cosine({self.frequency!r})"


storable_by_arguments(Columns, lambda kernel: kernel.get_params(deep=False))
storable_by_arguments(Cosine, lambda kernel: kernel.get_params(deep=False))
