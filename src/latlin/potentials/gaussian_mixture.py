"""Sites that are mixtures of Gaussians: spike and slab, contaminated noise, skewed noise.

Moments of the product with a Gaussian are closed (a mixture again). The expected log is not: log Σ_k e^{l_k} follows
one parabola l_k after the other and bends where two of them cross, the faster the steeper they do. The bends are
where the quadrature puts its panels.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from latlin.numerics.arrays import LOG_SQRT_2PI
from latlin.numerics.options import float_array
from latlin.numerics.quadrature import gaussian_nodes
from latlin.potentials.base import Array, Derivatives, ExpectedLog, Potential, QuadraticBound, TiltedMoments
from latlin.potentials.checks import finite, fractions, positive, refuse, refuse_overflow
from latlin.potentials.ranges import Positive, UnitInterval


class GaussianMixture(Potential):
    """φ(x) = Σ_k weights_k N(x | locs_k, scales_k²).

    Parameters
    ----------
    weights, locs, scales : array_like of shape (components,) or (sites, components)
        One mixture for all sites, or one per site; the three are broadcast. Weights are positive and sum to one;
        scales are standard deviations. Where all components have one centre the sites are super-Gaussian.

    Examples
    --------
    >>> spike_and_slab = GaussianMixture([0.9, 0.1], 0.0, [0.01, 1.0])
    >>> spike_and_slab.tilted_moments([0.1, 2.0], 0.01).mean.round(3).tolist()
    [0.003, 1.98]
    """

    parameters: ClassVar[tuple[str, ...]] = ("weights", "locs", "scales")

    weights: Array
    locs: Array
    scales: Array

    def __init__(self, weights: ArrayLike, locs: ArrayLike, scales: ArrayLike) -> None:
        given = {
            "weights": positive("weights", weights, 2),
            "locs": finite("locs", locs, 2),
            "scales": positive("scales", scales, 2),
        }
        total = np.atleast_1d(given["weights"]).sum(axis=-1)
        if np.any(np.abs(total - 1) > 1e-8):
            raise ValueError(f"weights must sum to one over components, got {total.flat[0]:g}")
        try:
            shape = np.broadcast_shapes((1,), *(value.shape for value in given.values()))
        except ValueError as error:
            found = ", ".join(f"{name} {value.shape}" for name, value in given.items())
            raise ValueError(f"weights, locs and scales must broadcast to one shape, got {found}") from error
        values = {name: np.broadcast_to(value, shape) for name, value in given.items()}
        self._store(
            arrays=("weights", "locs", "scales") if len(shape) == 2 else (), super_gaussian=_even(values), **values
        )

    def _parts(self, x: ArrayLike) -> tuple[Array, Array, Array, Array]:
        """ψ, and by component (first axis): its share of φ, the slope of its log, its precision."""
        x = float_array("x", x)
        weights, locs, scales = (self._components(value, x.ndim) for value in (self.weights, self.locs, self.scales))
        r = (x - locs) / scales
        logs = np.log(weights / scales) - LOG_SQRT_2PI - 0.5 * r * r
        top = logs.max(axis=0)
        # so far out that all are −∞ the nearest component in its own units is the whole of φ
        apart = np.where(np.isneginf(top), np.where(np.abs(r) == np.abs(r).min(axis=0), 0.0, -np.inf), logs - top)
        share = np.exp(apart)
        total = share.sum(axis=0)
        return top + np.log(total), share / total, -r / scales, scales**-2.0

    def _components(self, value: Array, ndim: int) -> Array:
        """A parameter with its components first, to go with x of so many axes."""
        first = np.moveaxis(value, -1, 0)
        return first.reshape(first.shape[:1] + (1,) * (ndim - first.ndim + 1) + first.shape[1:])

    def log_density(self, x: ArrayLike) -> Array:
        return self._parts(x)[0]

    def derivatives(self, x: ArrayLike) -> Derivatives:
        _, share, slope, precision = self._parts(x)
        first = np.sum(share * slope, axis=0)
        c = np.where(share > 0.0, slope - first, 0.0)
        # with moments over components: ψ″ = var(l′) − ⟨1/s²⟩, ψ‴ = third central moment − 3 cov(l′, 1/s²)
        second = np.sum(share * (c * c - precision), axis=0)
        return Derivatives(first, second, np.sum(share * c * (c * c - 3 * precision), axis=0))

    @property
    def middle(self) -> Array:
        # the first bend is no centre
        return self.locs[..., 0]

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        """The zeros of e^{l_j} + e^{l_k} in the complex plane: l_j − l_k = iπ, a quadratic equation in x."""
        k = self.weights.shape[-1]
        pairs = [pair for j in range(k) for i in range(j) for pair in self._zeros(i, j)]
        return tuple(pairs) or ((self.locs[..., 0], self.scales[..., 0]),)

    def _zeros(self, i: int, j: int) -> list[tuple[Array, Array]]:
        """Centre and width of the bends between two components."""
        s, t = self.scales[..., i], self.scales[..., j]
        apart = self.locs[..., j] - self.locs[..., i]
        ratio = np.log(self.weights[..., i] * t / (self.weights[..., j] * s))
        # with y = x − μ_i: l_i − l_j − iπ = a y² + b y + c
        a, b, c = 0.5 * (t**-2.0 - s**-2.0), -apart / t**2, ratio + 0.5 * (apart / t) ** 2 - 1j * np.pi
        root = np.sqrt(b * b - 4 * a * c)
        q = -0.5 * (b + np.where((b * root.conj()).real >= 0, 1, -1) * root)
        far = 1e6 * (np.abs(apart) + s + t)
        found = []
        for up, down in ((c, q), (q, a)):
            y = np.where(np.abs(up) < far * np.abs(down), up / np.where(down == 0, 1, down), 1j * far)
            found.append((self.locs[..., i] + y.real, np.abs(y.imag)))
        return found

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        with np.errstate(over="ignore", invalid="ignore"):
            results = self._in_blocks(GaussianMixture._expected_block, m, v)
        refuse_overflow("the log density", m, v, *results)
        return ExpectedLog(*results)

    def _expected_block(self, m: Array, v: Array) -> tuple[Array, Array, Array]:
        """⟨ψ⟩, ⟨ψ′⟩ and ½⟨ψ″⟩ from one pass over the components."""
        x, _, w = gaussian_nodes(m, np.sqrt(v), self.regions())
        psi, share, slope, precision = self._parts(x)
        first = np.einsum("kns,kns->ns", share, slope)
        slope -= first
        second = np.einsum("kns,kns->ns", share, slope * slope - precision)
        return tuple(np.einsum("ns,ns->s", w, f) for f in (psi, first, 0.5 * second))

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        if not np.all(power == 1):
            return self._by_power(m, v, power)
        total = v[:, None] + self.scales**2
        gap = self.locs - m[:, None]
        logs = np.log(self.weights) - 0.5 * (gap * gap / total + np.log(2 * np.pi * total))
        log_z = logsumexp(logs, axis=-1)
        share = np.exp(logs - log_z[:, None])
        move = v[:, None] / total * gap
        shift = np.sum(share * move, axis=-1)
        inside = v[:, None] * self.scales**2 / total
        variance = np.sum(share * (inside + (move - shift[:, None]) ** 2), axis=-1)
        return TiltedMoments(log_z, m + shift, variance)

    def _by_power(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        """By quadrature, or over a width so small that ψ is a parabola, by that."""
        narrow = np.sqrt(v) <= 1e-9 * self.scales.min(axis=-1)
        with np.errstate(over="ignore", invalid="ignore"):
            wide = super()._tilted_moments(m, np.where(narrow, 1.0, v), power)
            first, second, _ = self.derivatives(m)
            slope, u = power * first, np.where(narrow, v, 0.0)
            u = u / (1 - power * second * u)
            log_z = power * self.log_density(m) + 0.5 * (np.log1p(power * second * u) + slope * slope * u)
            both = zip((log_z, m + slope * u, u), wide, strict=True)
        results = [np.where(narrow, point, rest) for point, rest in both]
        refuse_overflow("the log density", m, v, *results)
        return TiltedMoments(*results)

    def _peaks(self, m: Array, v: Array, power: Array) -> tuple[tuple[Array, Array], ...]:
        """The peak that each component would make alone."""
        pull = (power * v)[:, None]
        total = pull + self.scales**2
        centre = m[:, None] + pull * (self.locs - m[:, None]) / total
        width = np.sqrt(np.maximum(v, 1e-300)[:, None] / total) * self.scales
        return tuple(zip(centre.T, width.T, strict=True))

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        loc = self.locs[..., 0]
        top, share, _, precision = self._parts(loc + xi)
        # a = −ψ′(loc + ξ)/ξ = ⟨1/s²⟩ over components
        a = np.sum(share * precision, axis=0)
        return QuadraticBound(a, a * loc, top + 0.5 * a * (xi - loc) * (xi + loc))

    def observe(self, y: ArrayLike) -> Any:
        raise ValueError("GaussianMixture does not know its observation: make a new one, with other locs")


def _even(values: dict[str, Array]) -> bool:
    """A mixture of Gaussians of one centre is a scale mixture, hence super-Gaussian."""
    return bool(np.all(values["locs"] == values["locs"][..., :1]))


# --- A sparse prior: each coefficient is either close to nothing or anything.


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
