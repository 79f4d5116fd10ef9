"""All sites of a model as one: quantities of every potential, weighted, as functions of the linear part x_n = h_nᵀw.

The potentials see x_n + o_n; everything returned is with respect to x_n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latlin.densities.density import Density
from latlin.inference.ep.kernels import LEAST, PROPER
from latlin.numerics.arrays import Array, all_finite
from latlin.numerics.stored import storable
from latlin.potentials.base import Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import UnboundedExpectation


@storable
class SiteParameters(NamedTuple):
    """Gaussian stand-ins exp(−½γ_n x_n² + ν_n x_n) of the sites; γ may be negative where ψ is not concave."""

    gamma: Array
    nu: Array


class Start(Protocol):
    """Another posterior, as far as a fit starts from it; `latlin.Posterior` is one."""

    @property
    def model(self) -> Any: ...

    @property
    def density(self) -> Density: ...

    @property
    def mean(self) -> Array: ...

    @property
    def variance(self) -> Array: ...

    @property
    def sites(self) -> SiteParameters | None: ...


def cavity(
    gamma: Array, nu: Array, x: Array, variance: Array, power: float, sure: bool = False
) -> tuple[NDArray[np.bool_], Array, Array]:
    """Which cavities are densities, and their means and variances (those of the marginals where they are not)."""
    proper, share = cavity_share(gamma, variance, power, sure)
    # 1/v₋ = 1/v − ηγ, m₋/v₋ = m/v − ην: m₋ = m − ηgv/(1 − ηγv) with the slope g = ν − γm of the stand-in at m
    push = np.where(proper, power * (nu - gamma * x) * variance, 0.0)
    return proper, x - push / share, variance / share


def cavity_share(gamma: Array, variance: Array, power: float, sure: bool = False) -> tuple[NDArray[np.bool_], Array]:
    """Which cavities are densities, and v/v₋ = 1 − ηγv of these, 1 of others; `sure` says that all are.

    A cavity that is 1e10 times as wide as the marginal is as good as any wider one: beyond that the share is rounding.
    """
    share = 1.0 - power * gamma * variance
    proper = np.ones_like(share, dtype=bool) if sure else share > PROPER
    return proper, np.where(proper, np.maximum(share, LEAST), 1.0)


@storable
@dataclass(frozen=True)
class Sites:
    """Blocks of potentials over N sites.

    Parameters
    ----------
    blocks : tuple of (slice, Potential)
    weight, offset : ndarray of shape (n_sites,)
    extra : ndarray of shape (n_sites,), optional
        Variances v of what projections leave out: ψ_n(x) stands for its expectation under N(x, v_n).
    """

    blocks: tuple[tuple[slice, Potential], ...]
    weight: Array
    offset: Array
    extra: Array | None = None

    def __len__(self) -> int:
        return len(self.weight)

    def shifted(self, by: Array) -> Sites:
        """The same sites at x + by.

        Sites about a location have it moved instead: targets near 10⁹ leave x + by with seven digits after the point.
        """
        offset, blocks = self.offset + by, []
        for span, potential in self.blocks:
            if potential.located:
                potential, offset[span] = potential.observe(potential.observed - offset[span]), 0.0
            blocks.append((span, potential))
        return replace(self, blocks=tuple(blocks), offset=offset)

    def part(self, span: slice) -> Sites:
        """The sites of a contiguous range."""
        cuts = [(max(span.start, own.start), min(span.stop, own.stop), own, p) for own, p in self.blocks]
        blocks = tuple(
            (slice(a - span.start, b - span.start), p.select(slice(a - own.start, b - own.start)))
            for a, b, own, p in cuts
            if a < b
        )
        extra = None if self.extra is None else self.extra[span]
        return Sites(blocks, self.weight[span], self.offset[span], extra)

    @property
    def potentials(self) -> tuple[Potential, ...]:
        return tuple(potential for _, potential in self.blocks)

    @property
    def log_concave(self) -> bool:
        return all(potential.log_concave for potential in self.potentials)

    @property
    def gaussian(self) -> bool:
        """Every site is a Gaussian, so that the posterior is one too."""
        return all(potential.gaussian for potential in self.potentials)

    def typical_precision(self) -> Array:
        """−2 ∂⟨ψ⟩/∂s² of each site at its own centre and width: a positive curvature to start from."""
        return self._typical.copy()

    @cached_property
    def _typical(self) -> Array:
        parts = []
        for span, potential in self.blocks:
            count = span.stop - span.start
            width = np.broadcast_to(potential.regions()[0][1], count)
            parts.append(np.maximum(potential.typical_precision(count), 1e-3 / width**2))
        return self.weight * join_parts(parts)

    def centres(self) -> Array:
        """Where each site has its own centre, as a function of x."""
        parts = [np.broadcast_to(potential.regions()[0][0], span.stop - span.start) for span, potential in self.blocks]
        return join_parts(parts) - self.offset

    def log_density(self, x: ArrayLike) -> Array:
        """weight_n ψ_n(x_n + o_n), for x of shape (..., n_sites)."""
        x = np.asarray(x, float) + self.offset
        if self.extra is None:
            parts = [potential.log_density(x[..., span]) for span, potential in self.blocks]
        else:
            spread = np.broadcast_to(self.extra, x.shape)
            parts = [p.expected_log(x[..., span], spread[..., span]).value for span, p in self.blocks]
        return self._weighted(np.concatenate(parts, axis=-1) if parts else np.zeros(x.shape))

    def log_density_sums(self, x: Array) -> Array:
        """Σ_n weight_n ψ_n(x_n + o_n), for rows x of shape (count, n_sites)."""
        if self.extra is not None:
            return self._averaged_sums(x)
        if not np.all(self.weight > 0.0):
            return self.log_density(x).sum(axis=-1)
        x = x + self.offset if self.offset.any() else x
        return np.sum([p.log_density(x[..., span]) @ self.weight[span] for span, p in self.blocks], axis=0)

    def _averaged_sums(self, x: Array) -> Array:
        """The same with extra variances; −∞ for those rows at which an expectation is too large for a number."""
        try:
            return self.log_density(x).sum(axis=-1)
        except UnboundedExpectation:
            if len(x) == 1:
                return np.array([-np.inf])
            half = len(x) // 2
            return np.concatenate([self._averaged_sums(x[:half]), self._averaged_sums(x[half:])])

    def slopes(self, x: Array) -> tuple[Array, Array]:
        """ψ′ and ψ″."""
        if self.extra is None:
            return self.derivatives(x)[:2]
        expected = self.expected_log(x, np.zeros_like(x))
        # ∂²⟨ψ⟩/∂m² = 2 ∂⟨ψ⟩/∂s²
        return expected.d_mean, 2.0 * expected.d_var

    def expansion(self, x: Array) -> tuple[Array, Array, Array]:
        """ψ, ψ′ and ψ″ at x of shape (n_sites,)."""
        if self.extra is not None:
            return self.log_density(x), *self.slopes(x)
        value, first, second = self._ask(lambda p, m: p._expansion(m), self._seen(x), count=3)
        return self._weighted(value), self._weighted(first), self._weighted(second)

    def derivatives(self, x: Array) -> Derivatives:
        if self.extra is not None:
            none = np.zeros_like(x)
            here = self.expected_log(x, none)
            return Derivatives(here.d_mean, 2.0 * here.d_var, 2.0 * site_curvature(self, x, none, here).mv)
        first, second, third = self._ask(lambda p, m: p.derivatives(m), self._seen(x), count=3)
        return Derivatives(self._weighted(first), self._weighted(second), self._weighted(third))

    def expected_log(self, mean: Array, var: Array) -> ExpectedLog:
        var = var if self.extra is None else var + self.extra
        value, d_mean, d_var = self._ask(lambda p, m, v: p.expected_log(m, v), self._seen(mean), var, count=3)
        return ExpectedLog(self._weighted(value), self._weighted(d_mean), self._weighted(d_var))

    def finite_expected_log(self, mean: Array, var: Array) -> ExpectedLog | None:
        """`expected_log`, or None where it is not finite (a Poisson rate beyond the largest number, a site of −∞)."""
        try:
            expected = self.expected_log(mean, var)
        except UnboundedExpectation:
            return None
        return expected if all(map(all_finite, expected)) else None

    def tilted_moments(self, mean: Array, var: Array, power: float = 1.0) -> TiltedMoments:
        log_z, tilted_mean, variance = self._ask(
            lambda p, m, v, t: p.tilted_moments(m, v, t),
            self._seen(mean),
            var,
            power * self.weight,
            count=3,
        )
        return TiltedMoments(log_z, tilted_mean - self.offset, variance)

    def quadratic_bound(self, xi: Array) -> QuadraticBound:
        """−½a(x+o)² + b(x+o) + c, expanded in x."""
        a, b, c = self._ask(lambda p, t: p.quadratic_bound(t), xi, count=3)
        a, b, c = self.weight * a, self.weight * b, self.weight * c
        o = self.offset
        return QuadraticBound(a, b - a * o, c - 0.5 * a * o**2 + b * o)

    def smoothed(self, x: Array, epsilon: float) -> tuple[Array, Array, Array]:
        """⟨ψ(x + εdz)⟩ over standard normal z, with slope and curvature; d is a block's width, 0 where ψ is smooth."""
        widths = [
            np.broadcast_to(0.0 if p.smooth else p.regions()[0][1], span.stop - span.start) for span, p in self.blocks
        ]
        expected = self.expected_log(x, (epsilon * join_parts(widths)) ** 2)
        # ∂²⟨ψ⟩/∂m² = 2 ∂⟨ψ⟩/∂s²
        return expected.value, expected.d_mean, 2.0 * expected.d_var

    def _weighted(self, values: Array) -> Array:
        """weight × values, and 0 for a site of weight 0 whatever its value: φ⁰ = 1."""
        if self._counts_once:
            return values
        if np.all(self.weight > 0.0):
            return self.weight * values
        return np.multiply(self.weight, values, out=np.zeros_like(values), where=self.weight > 0.0)

    @cached_property
    def _counts_once(self) -> bool:
        return bool(np.all(self.weight == 1.0))

    def _seen(self, x: Array) -> Array:
        """x + o, as the potentials see it."""
        return x + self.offset if self._has_offset else x

    @cached_property
    def _has_offset(self) -> bool:
        return bool(self.offset.any())

    def _ask(self, question: Callable[..., Any], *arguments: Array, count: int) -> Sequence[Array]:
        answers = [question(p, *(a[span] for a in arguments)) for span, p in self.blocks]
        if len(answers) == 1:
            return answers[0]
        return [join_parts([answer[i] for answer in answers]) for i in range(count)]


def join_parts(parts: list[Array]) -> Array:
    """Parts one after the other; a single one as it is."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0)


#: h in units of the length over which E varies
STEP = 0.05


class SiteCurvature(NamedTuple):
    """∂²E/∂m², ∂²E/∂m∂v and ∂²E/∂v² of every site."""

    mm: Array
    mv: Array
    vv: Array


def site_curvature(sites: Sites, x: Array, variance: Array, here: ExpectedLog) -> SiteCurvature:
    """Second derivatives at projected moments whose `expected_log` is `here`."""
    h = STEP * _lengths(sites, variance)
    up, down = sites.expected_log(x + h, variance), sites.expected_log(x - h, variance)
    # f″ = 2(f₊ − 2f + f₋)/h² − (f′₊ − f′₋)/2h
    second = 2.0 * (up.d_mean - 2.0 * here.d_mean + down.d_mean) / h**2 - (up.d_var - down.d_var) / h
    # f‴ = 15(f₊ − f₋)/2h³ − 3(f′₊ + 8f′ + f′₋)/2h²
    third = 7.5 * (up.d_mean - down.d_mean) / h**3 - 3.0 * (up.d_var + 8.0 * here.d_var + down.d_var) / h**2
    return SiteCurvature(2.0 * here.d_var, 0.5 * second, 0.25 * third)


def _lengths(sites: Sites, variance: Array) -> Array:
    """Over what length E bends: that of the Gaussian, and of ψ itself where it is smooth or the Gaussian a point."""
    lengths = variance.copy() if sites.extra is None else variance + sites.extra
    for span, potential in sites.blocks:
        own = np.asarray(potential.regions()[0][1]) ** 2
        lengths[span] += own if potential.smooth else np.where(lengths[span] > 0.0, 0.0, own)
    return np.sqrt(lengths)
