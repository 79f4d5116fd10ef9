"""Arguments and answers of potentials: checks that return read-only arrays, and the arrays over sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latlin.numerics.arrays import LARGEST, Array, summable, visible


class UnboundedExpectation(ValueError):
    """An expectation of a potential is too large for a floating-point number."""


def finite(name: str, value: ArrayLike, max_ndim: int = 1) -> Array:
    """Finite numbers, a scalar or one number per site, as a read-only copy."""
    visible(name, value)
    try:
        array = np.array(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold real numbers, got {value!r:.80}") from error
    if array.ndim > max_ndim:
        raise ValueError(f"{name} must have at most {max_ndim} dimension(s), got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} is empty; expected a number or one number per site")
    refuse(name, array, ~np.isfinite(array), "finite numbers")
    summable(name, array)
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


# --- Answers at means up to 1e300 and variances from 1e-300 to 1e300, where a family's own formulas overflow or cancel.
#
# Far from where it bends every ψ is a parabola (nearly always a line) over the whole reach of a Gaussian; its
# expectation and its product with the Gaussian are then closed. What is no parabola goes to the panels of `Potential`.


#: means and variances (or inverse variances) beyond that size are looked at first
FAR, LARGE = 1e9, 1e40
REACH = 10.0
#: share of a number that a difference from it may lose
LOST = 4.0 * np.finfo(float).eps


def is_extreme(m: Array, v: Array) -> NDArray[np.bool_]:
    """Sites whose numbers are so large or so small that formulas in squares lose them."""
    return (np.abs(m) > FAR) | (v > LARGE) | ((v > 0) & (v < 1.0 / LARGE))


def _is_usual(m: Array, v: Array) -> bool:
    """Whether a glance shows that no site is extreme: no part is larger than the root of a sum of squares."""
    return bool(m.size and m @ m <= FAR**2 and v @ v <= LARGE**2 and v.min() >= 1.0 / LARGE)


def answer(block: SiteBlock, closed: Any, panels: Any, *arrays: Array) -> Any:
    """The family's own answer; at extreme sites that of a parabola, and panels for what is not a number."""
    own = getattr(type(block), panels.__name__)
    usual = _is_usual(*arrays[:2])
    far = np.zeros(arrays[0].size, dtype=bool) if usual else is_extreme(*arrays[:2])
    if usual or not np.any(far):
        found = own(block, *arrays)
        # the least of some numbers is not a number if one of them is not
        if not any(np.size(part) and np.isnan(np.min(part)) for part in found):
            return found
    out = np.full((3, arrays[0].size), np.nan)
    some = np.flatnonzero(far)
    if some.size:
        values, good = closed(block.select(some), *(array[some] for array in arrays))
        out[:, some[good]] = values[:, good]
    for ask in (own, panels):
        left = np.flatnonzero(np.isnan(out).any(axis=0))
        if left.size:
            out[:, left] = ask(block.select(left), *(array[left] for array in arrays))
    return out


def mend_moments(block: SiteBlock, found: Any, m: Array, v: Array, power: Array) -> Any:
    """Tilted moments with those that are still no numbers taken from the mode."""
    lost = np.flatnonzero(~np.isfinite(found[1]) | ~np.isfinite(found[2]) | np.isnan(found[0]))
    if not lost.size:
        return found
    mended = np.array(found)
    mended[:, lost] = mode_tilted(block.select(lost), m[lost], v[lost], power[lost])
    return mended


def parabola_expected(block: SiteBlock, m: Array, v: Array) -> tuple[Array, NDArray[np.bool_]]:
    """⟨ψ⟩ and its derivatives where ψ is a parabola, and where it is one."""
    value, first, second = block._expansion(m)
    found = np.array(np.broadcast_arrays(value + 0.5 * second * v, first, 0.5 * second))
    good = _is_parabola(block, m, m, np.sqrt(v), first, second) & ~np.isnan(found).any(axis=0)
    # where ψ is −∞ at the mean, so is its expectation
    gone = np.isneginf(value)
    found[0, gone] = -np.inf
    return found, good | (gone & ~np.isnan(found).any(axis=0))


def parabola_tilted(block: SiteBlock, m: Array, v: Array, power: Array) -> tuple[Array, NDArray[np.bool_]]:
    """log Z, mean and variance where ψ is a parabola, and where it is one.

    With slope g = pψ′ and u = v/(1 − pvψ″): log Z = pψ + ½ log(u/v) + ½g²u, mean = m + gu, variance = u.
    """
    value, first, second = block._expansion(m)
    slope, shrink = power * first, 1.0 / (1.0 - power * v * second)
    u = v * shrink
    move = slope * u
    log_z = power * value + 0.5 * np.log(shrink) + 0.5 * slope * move
    # a parabola that is −∞ at m in floating point is so all the more in truth
    log_z = np.where(np.isneginf(value) & (power > 0), -np.inf, log_z)
    found = np.array(np.broadcast_arrays(log_z, m + move, u))
    good = (shrink > 0) & _is_parabola(block, m, m + move, np.sqrt(u), first, second)
    return found, good & np.isfinite(found[1:]).all(axis=0) & ~np.isnan(log_z)


def _is_parabola(block: SiteBlock, m: Array, centre: Array, s: Array, first: Array, second: Array) -> NDArray[np.bool_]:
    """The slope is what a parabola at m would have, at the centre and ten standard deviations to either side."""
    good = np.isfinite(first) & np.isfinite(second)
    # a centre far from m is known to the last digit of m only
    reach = REACH * s + np.where(centre == m, 0.0, LOST * np.abs(m))
    for x in (centre - reach, centre, centre + reach):
        slope, bend, _ = block.derivatives(x)
        want = first + second * (x - m)
        good &= np.abs(slope - want) <= 1e-11 * np.abs(want) + 1e-300
        good &= np.abs(bend - second) * s <= 1e-11 * (np.abs(first) + np.abs(want)) + 1e-300
    return np.asarray(good)


def mode_tilted(block: SiteBlock, m: Array, v: Array, power: Array) -> Array:
    """log Z, mean and variance from height and curvature at the mode, all that is left of a φ that is so far out.

    log Z is right to a few nat in more than 1e15 of them, the mean to the width of φ.
    """
    x, push = np.array(np.broadcast_to(block.regions()[0][0], m.shape), dtype=float), power * v
    x = np.where(np.abs(x - m) < np.sqrt(v) * 1e-8, m, x)
    low, high = np.minimum(x, m), np.maximum(x, m)
    for _ in range(200):
        # the mode lies between the Gaussian's centre and where φ alone would have it
        slope = push * block.derivatives(x).first - (x - m)
        low, high = np.where(slope > 0, x, low), np.where(slope > 0, high, x)
        x = np.sinh(0.5 * (np.arcsinh(low) + np.arcsinh(high)))
    value, _, second = block._expansion(x)
    shrink = 1.0 / np.maximum(1.0 - push * second, 1.0)
    away = (x - m) / np.sqrt(v)
    log_z = power * value - 0.5 * away * away + 0.5 * np.log(shrink)
    found = np.array([np.where(np.isnan(log_z), -np.inf, log_z), x, v * shrink])
    return np.where(np.isnan(found), np.array([[-np.inf], [0.0], [0.0]]), found)
