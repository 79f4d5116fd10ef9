"""Arguments and answers of potentials: checks that return read-only arrays, and the arrays over sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latlin.numerics.arrays import LARGEST, Array, check_summable, check_visible


class UnboundedExpectation(ValueError):
    """An expectation of a potential is too large for a floating-point number."""


def finite(name: str, value: ArrayLike, max_ndim: int = 1) -> Array:
    """Finite numbers, a scalar or one number per site, as a read-only copy."""
    check_visible(name, value)
    try:
        array = np.array(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold real numbers, got {value!r:.80}") from error
    if array.ndim > max_ndim:
        raise ValueError(f"{name} must have at most {max_ndim} dimension(s), got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} is empty; expected a number or one number per site")
    refuse(name, array, ~np.isfinite(array), "finite numbers")
    check_summable(name, array)
    array.flags.writeable = False
    return array


def positive(name: str, value: ArrayLike, max_ndim: int = 1) -> Array:
    """Finite numbers above zero whose inverse squares are numbers."""
    array = finite(name, value, max_ndim)
    refuse(name, array, array < 1.0 / LARGEST, "positive numbers")
    return array


def labels(name: str, value: ArrayLike) -> Array:
    """Labels in {−1, +1}, {0, 1} or booleans, returned as −1 and +1."""
    array = finite(name, value)
    negative = -1.0 if np.any(array == -1) else 0.0
    refuse(name, array, (array != 1) & (array != negative), "labels in {-1, +1}, in {0, 1} or booleans")
    signs = np.where(array == 1, 1.0, -1.0)
    signs.flags.writeable = False
    return signs


#: beyond it floating-point numbers leave out whole ones
MOST_COUNTED = 2.0**53


def countable(name: str, array: Array) -> Array:
    """Counts, or averages of counts, that floating-point numbers can tell from their neighbours."""
    refuse(name, array, array > MOST_COUNTED, "counts of at most 2⁵³ ≈ 9·10¹⁵, beyond which neighbours are one number")
    return array


def counts(name: str, value: ArrayLike, below: int | None = None) -> Array:
    """Whole numbers 0, 1, 2, …, if asked all below `below`."""
    array = finite(name, value)
    refuse(name, array, (array < 0) | (array != np.floor(array)), "whole numbers 0, 1, 2, …")
    countable(name, array)
    if below is not None:
        refuse(name, array, array >= below, f"whole numbers from 0 to {below - 1}")
    return array


def refuse_overflow(what: str, m: Array, v: Array, *results: Array) -> None:
    """Raise where a result is not finite, naming the mean and variance it came from."""
    bad = ~np.all(np.isfinite(results), axis=0)
    if np.any(bad):
        raise ValueError(f"{what} overflows at mean {m[bad][0]:g}, var {v[bad][0]:g}")


def common_length(**arrays: Array) -> int | None:
    """The one length of all one-dimensional arguments; None when all are scalars."""
    lengths = {name: len(array) for name, array in arrays.items() if np.ndim(array) > 0}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ValueError(f"parameters must be scalars or arrays of one common length, but {found}")
    return next(iter(lengths.values()), None)


def fractions(name: str, value: ArrayLike) -> Array:
    """Numbers strictly between zero and one."""
    array = finite(name, value)
    refuse(name, array, (array <= 0) | (array >= 1), "numbers strictly between 0 and 1")
    return array


class RefusedSites(ValueError):
    """Some sites hold what they must not; `of_rows` says the same of a table whose rows they are.

    Attributes
    ----------
    said : str
        What was expected, and what came first.
    first, count : int
        The first such site, and how many there are.
    """

    said: str
    first: int
    count: int

    @classmethod
    def at(cls, said: str, first: int, count: int, where: str) -> RefusedSites:
        """What was expected and came, and where."""
        error = cls(f"{said} {where}")
        error.said, error.first, error.count = said, first, count
        return error

    def of_rows(self, rows: NDArray[np.int64] | None) -> str:
        """With the numbers of the rows of all sites; without them, each site is its own row."""
        many = f"{self.count} rows" if self.count > 1 else "1 row"
        return f"{self.said} in {many}, first in row {self.first if rows is None else rows[self.first]}"


def refuse(name: str, array: Array, bad: NDArray[np.bool_], expected: str) -> None:
    """Raise where something is bad: the first bad number, its site, and how many there are."""
    if np.any(bad):
        first = int(np.flatnonzero(bad)[0])
        said = f"{name} must hold {expected}, got {np.broadcast_to(array, bad.shape).flat[first]:g}"
        if bad.ndim == 0:
            raise ValueError(said)
        count = int(np.count_nonzero(bad))
        raise RefusedSites.at(said, first, count, f"at site {first} ({count} of {bad.size} sites)")


@contextmanager
def naming_rows() -> Iterator[None]:
    """Sites that are refused are rows to whoever gave them."""
    try:
        yield
    except RefusedSites as error:
        where = error.of_rows(None).removeprefix(f"{error.said} ")
        raise RefusedSites.at(error.said, error.first, error.count, where) from None


# --- What potentials answer, each an array over sites.


class ExpectedLog(NamedTuple):
    """⟨ψ(x)⟩ under N(x | mean, var) and its derivatives, each an array over sites."""

    value: Array
    d_mean: Array
    d_var: Array


class TiltedMoments(NamedTuple):
    """log Z, mean and variance of N(x | mean, var) φ(x)^power / Z."""

    log_z: Array
    mean: Array
    variance: Array


class Derivatives(NamedTuple):
    """ψ′(x), ψ″(x), ψ‴(x)."""

    first: Array
    second: Array
    third: Array


class QuadraticBound(NamedTuple):
    """Coefficients of ψ(x) ≥ −½ a x² + b x + c, tight at x = ±ξ (up to the site's own shift)."""

    a: Array
    b: Array
    c: Array


class SiteBlock(Protocol):
    """What the routines below `Potential` ask of one."""

    @property
    def log_concave(self) -> bool: ...

    def log_density(self, x: Array) -> Array: ...

    def derivatives(self, x: Array) -> Derivatives: ...

    def regions(self) -> tuple[tuple[Array, Array], ...]: ...

    def select(self, index: NDArray[np.intp]) -> Self: ...

    def _expansion(self, x: Array) -> tuple[Array, Array, Array]: ...

    def _remainder(self, x: Array, d: Array) -> Array: ...

    def _in_blocks(self, function: Callable[..., Any], *arrays: Array) -> list[Array]: ...


def check_trials(successes: ArrayLike, trials: ArrayLike) -> tuple[Array, Array]:
    """Successes and trials as counts that go together."""
    y, n = counts("successes", successes), counts("trials", trials)
    refuse("trials", n, n < 1, "whole numbers from 1")
    if y.ndim and n.ndim and y.size != n.size:
        raise ValueError(f"parameters must be of one common length, but successes has {y.size}, trials has {n.size}")
    refuse("successes", y, y > n, "numbers of at most trials")
    return y, n
