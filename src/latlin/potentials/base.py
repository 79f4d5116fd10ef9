"""What every potential answers: a block of scalar functions φ_n, one per site, evaluated as arrays; ψ = log φ.

`log_density` is the one thing a family must write; the others have quadrature defaults, which a closed form replaces.
To add a family, subclass `Potential`: name the constructor's arguments in `parameters`, the attributes that hold one
number per site in `arrays`, those that can be learnt in `free`, store all with `_store`, write `log_density` and,
where ψ has them, `derivatives`; say in `regions` where ψ bends and in `_sample` how an observation is drawn. Closed
forms go into `_expected_log`, `_tilted_moments` or `_expected_parameter_derivative`, which receive checked arrays.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from latlin.numerics import quadrature
from latlin.numerics.arrays import Array
from latlin.numerics.options import float_array
from latlin.numerics.rng import RandomState, generator
from latlin.numerics.stored import storable_by_arguments
from latlin.potentials import extremes
from latlin.potentials.about_mode import nearly_gaussian_moments
from latlin.potentials.checks import Derivatives, ExpectedLog, QuadraticBound, TiltedMoments, common_length
from latlin.potentials.predictive import LocationPredictive, Predictive
from latlin.potentials.ranges import Range

#: where a block keeps what it has made of its parameters
MADE = "_made"
SITES_PER_PIECE = 256
T = TypeVar("T")


class Potential(ABC):
    """A block of sites of one family.

    Parameters are scalars or arrays of one common length, the number of sites; scalars serve any. They never change.
    """

    #: names of the constructor's arguments; each is an attribute too
    parameters: ClassVar[tuple[str, ...]] = ()
    #: names of the attributes that hold one number per site (or one for all)
    arrays: ClassVar[tuple[str, ...]] = ()
    #: the parameter that holds the observation, and some valid value of it
    observation: ClassVar[tuple[str, float]] = ("loc", 0.0)
    #: the constructor's arguments that can be learnt, and where they may lie
    free: Mapping[str, Range] = MappingProxyType({})
    #: φ depends on x, loc and scale through (x − loc)/scale, and is divided by scale
    location_scale: ClassVar[bool] = False
    #: ψ is concave
    log_concave: bool = False
    #: ψ(x) = t x − A(x) + c with t of the observation and A that of all observations: x is the natural parameter
    natural: bool = False
    #: ψ(x) − b x is convex and decreasing in (x − loc)² for some b, so that quadratic lower bounds exist
    super_gaussian: bool = False
    #: ψ is a function of x − loc and of other parameters
    located: bool = False
    #: ψ has two continuous derivatives
    smooth: bool = True
    #: φ is a Gaussian in x, so that a posterior of such sites is exact
    gaussian: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        storable_by_arguments(cls, lambda value: value.parameters)

    # --- what a family writes -------------------------------------------------------------------

    @abstractmethod
    def log_density(self, x: ArrayLike) -> Array:
        """ψ(x), constants included, for x of shape (..., sites)."""

    def derivatives(self, x: ArrayLike) -> Derivatives:
        """ψ′, ψ″ and ψ‴ at x of shape (..., sites); by central differences unless the family knows them."""
        x = float_array("x", x)
        return Derivatives(*quadrature.three_derivatives(self.log_density, x, self.regions()[0][1]))

    def _expansion(self, x: Array) -> tuple[Array, Array, Array]:
        """ψ, ψ′ and ψ″ at x; a family that has all three at the price of one overrides it."""
        first, second, _ = self.derivatives(x)
        return self.log_density(x), first, second

    def _remainder(self, x: Array, d: Array) -> Array:
        """ψ(x + d) − ψ(x) − ψ′(x) d; a steep family knows it without cancellation."""
        value, slope, _ = self._expansion(x)
        return self.log_density(x + d) - value - slope * d

    def _mode_start(self, m: Array, v: Array, power: Array) -> Array:
        """A place from which the mode of N(x | m, v) φ(x)^power is looked for."""
        return m

    def regions(self) -> tuple[tuple[Array, Array], ...]:
        """Where ψ is neither a line nor a parabola: pairs (centre, width), scalars or one number per site.

        Quadrature puts panel edges at each centre (a kink may sit there) and at centre ± width·2^k.
        """
        zero, one = np.zeros(()), np.ones(())
        return ((getattr(self, "loc", zero), getattr(self, "scale", one)),)

    @property
    def middle(self) -> Array:
        """Of super-Gaussian sites: the place whose distance ξ `quadratic_bound` takes."""
        return np.asarray(self.regions()[0][0], dtype=float)

    def typical_precision(self, count: int) -> Array:
        """−2 ∂⟨ψ⟩/∂s² of `count` sites, each at its own centre and width: a curvature to start from."""
        centre, width = (np.broadcast_to(value, count) for value in self.regions()[0])
        return -2.0 * self.expected_log(centre, width**2).d_var

    @property
    def strip(self) -> Any:
        """φ is analytic and has no zero in |Im x| < strip, a number or one per site; None where that is not known."""
        return None

    def _peaks(self, m: Array, v: Array, power: Array) -> tuple[tuple[Array, Array], ...]:
        """Centres and widths of the peaks of N(x | m, v) φ(x)^power, where it can have several far apart."""
        return ()

    def _expected_log(self, m: Array, v: Array) -> ExpectedLog:
        """`expected_log` for checked arrays of shape (sites,), by panels of Gauss–Legendre nodes."""
        if not m.size:
            return ExpectedLog(m, m, m)
        by = Potential._derivative_block if self.smooth else Potential._weighted_block
        return ExpectedLog(*self._in_blocks(by, m, v))

    def _tilted_moments(self, m: Array, v: Array, power: Array) -> TiltedMoments:
        """`tilted_moments` for checked arrays of shape (sites,): by few nodes, or by panels of Gauss–Legendre nodes."""
        if not self.smooth:
            return TiltedMoments(*self._in_blocks(type(self)._tilted_block, m, v, power))
        out, rest = nearly_gaussian_moments(self, m, v, power)
        if rest.size:
            panels = self.select(rest)._in_blocks(type(self)._tilted_block, m[rest], v[rest], power[rest])
            out[:, rest] = panels
        return TiltedMoments(*out)

    def _quadratic_bound(self, xi: Array) -> QuadraticBound:
        """`quadratic_bound` of an even ψ(x − loc), Challis (2013), eqs. 3.8.2–3.8.3.

        With ψ = g((x − loc)²), g convex: a = −2 g′(ξ²) = −ψ′(loc + ξ)/ξ, and a = −ψ″(loc) at ξ = 0.
        """
        loc = np.asarray(getattr(self, "loc", 0.0), dtype=float)
        x = loc + xi
        slope, curvature, _ = self.derivatives(x)
        # nearer than that to the centre the slope is lost in rounding
        near = 1e-8 * np.asarray(self.regions()[0][1])
        a = np.where(xi > near, -slope / np.maximum(xi, near), -curvature)
        # −½a(x−loc)² + ψ(loc+ξ) + ½aξ²
        return QuadraticBound(a, a * loc, self.log_density(x) + 0.5 * a * (xi - loc) * (xi + loc))

    def _parameter_derivative(self, name: str, x: Array) -> Array | None:
        """∂ψ/∂parameter at x in closed form; None where the family leaves it to differences."""
        if not self.location_scale or name != "scale":
            return None
        # ψ = f((x − loc)/s) − log s
        block: Any = self
        return np.asarray(-(1.0 + (x - block.loc) * self.derivatives(x).first) / block.scale)

    def _parameter_slopes(self, name: str, x: Array) -> tuple[Array, Array, Array] | None:
        """∂ψ/∂parameter, ∂ψ′/∂parameter and ∂ψ″/∂parameter at x in closed form; None where differences serve."""
        return None

    def _expected_parameter_derivative(self, name: str, m: Array, v: Array) -> Array | None:
        """⟨∂ψ/∂parameter⟩ in closed form; None where the family leaves it to differences."""
        if not self.location_scale or name != "scale":
            return None
        # ⟨(x − loc)ψ′⟩ = (m − loc)⟨ψ′⟩ + v⟨ψ″⟩
        _, d_mean, d_var = self._expected_log(m, v)
        block: Any = self
        return np.asarray(-(1.0 + (m - block.loc) * d_mean + 2.0 * v * d_var) / block.scale)

    def _sharpness(self) -> Array:
        """Of counts: the square of how steeply P(new count ≤ the stored one | x) falls with x, at most."""
        return np.asarray(self.observed + 1.0)

    def _sample(self, x: Array, rng: np.random.Generator) -> Array:
        """One observation for each x of shape (..., sites): x plus noise unless the family says otherwise."""
        return x + self._noise_sample(x.shape, rng)

    def _noise_moments(self) -> tuple[Array, Array]:
        """Mean and variance of y − x, an observation less the projection it is made of."""
        self._no_predictive()

    def _noise_cdf(self, r: Array) -> Array:
        """P(y − x ≤ r) for r of shape (..., sites)."""
        self._no_predictive()

    def _noise_sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draws of y − x of shape (..., sites)."""
        self._no_predictive()

    # --- what users and engines call ------------------------------------------------------------

    @property
    def size(self) -> int | None:
        """Number of sites, or None when the parameters serve any number."""
        return common_length(**{name: getattr(self, name) for name in self.arrays})

    def expected_log(self, mean: ArrayLike, var: ArrayLike) -> ExpectedLog:
        """⟨ψ(x)⟩ under N(x | mean, var) with its derivatives with respect to mean and var.

        Parameters
        ----------
        mean, var : array_like of shape (..., sites)
            var = 0 gives ψ(mean), ψ′(mean) and ½ψ″(mean).
        """
        block, (m, v), shape = self._flat(mean=mean, var=var)
        with np.errstate(all="ignore"):
            found = extremes.answer(block, extremes.parabola_expected, Potential._expected_log, m, v)
        return ExpectedLog(*(out.reshape(shape) for out in found))

    def tilted_moments(self, mean: ArrayLike, var: ArrayLike, power: ArrayLike = 1.0) -> TiltedMoments:
        """log Z, mean and variance of N(x | mean, var) φ(x)^power / Z.

        Parameters
        ----------
        mean, var, power : array_like of shape (..., sites)
            var and power may be zero.
        """
        block, (m, v, p), shape = self._flat(mean=mean, var=var, power=power)
        with np.errstate(all="ignore"):
            found = extremes.answer(block, extremes.closed_tilted, Potential._tilted_moments, m, v, p)
            found = extremes.mend_moments(block, found, m, v, p)
        return TiltedMoments(*(out.reshape(shape) for out in found))

    def quadratic_bound(self, xi: ArrayLike) -> QuadraticBound:
        """(a, b, c) with ψ(x) ≥ −½ a x² + b x + c for all x, and equality where |x − loc| = ξ.

        Parameters
        ----------
        xi : array_like of shape (..., sites)
            Non-negative distances from the site's `middle` (for labels: from zero).
        """
        if not self.super_gaussian:
            raise ValueError(f"{type(self).__name__} sites are not super-Gaussian: they have no quadratic bound")
        xi = np.asarray(xi, dtype=float)
        if not np.all(np.isfinite(xi) & (xi >= 0)):
            raise ValueError("xi must hold finite numbers of at least zero")
        return QuadraticBound(*np.broadcast_arrays(*self._quadratic_bound(xi)))

    def predictive(self, mean: ArrayLike, var: ArrayLike) -> Predictive:
        """The distribution of a new observation y (never the stored one) when x ~ N(mean, var).

        The stored observations, and how many there are, play no role; other parameters that hold one number
        a site must be as many as the new sites (`select` gives those of some sites).
        """
        block, (m, v), shape = self.observe(self.observation[1])._flat(mean=mean, var=var)
        return block._predictive(m, v, shape)

    def _predictive(self, m: Array, v: Array, shape: tuple[int, ...]) -> Predictive:
        return LocationPredictive(self, m, v, shape)

    def sample(self, x: ArrayLike, rng: RandomState = None) -> Array:
        """Draw one observation y ~ p(y | x) for each x of shape (..., sites); the stored observations play no role.

        >>> from latlin.potentials import Poisson
        >>> Poisson(0).sample([0.0, 3.0, 6.0], 1).tolist()
        [2.0, 30.0, 399.0]
        """
        x = float_array("x", x)
        if not np.all(np.isfinite(x)):
            raise ValueError(f"x must be finite, got {x[~np.isfinite(x)].flat[0]}")
        return np.asarray(self._sample(x, generator(rng)), dtype=float)

    def parameter_derivative(self, name: str, x: ArrayLike) -> Array:
        """∂ψ/∂parameter at x of shape (..., sites) for a parameter in `free`.

        One number per site, the derivative in that site's own value. A parameter that is one vector for all sites (cut
        points) gives a first axis more, over its components.
        """
        self._refuse_fixed(name)
        x = float_array("x", x)
        exact = self._parameter_derivative(name, x)
        return self._difference(name, lambda block: block.log_density(x)) if exact is None else exact

    def expected_parameter_derivative(self, name: str, mean: ArrayLike, var: ArrayLike) -> Array:
        """⟨∂ψ/∂parameter⟩ under N(x | mean, var), in the shape of `parameter_derivative`."""
        self._refuse_fixed(name)
        block, (m, v), shape = self._flat(mean=mean, var=var)
        found = block._expected_parameter_derivative(name, m, v)
        if found is None:
            found = block._difference(name, lambda other: other._expected_log(m, v).value)
        return found.reshape((*found.shape[:-1], *shape))

    def functional_derivative(self, name: str, value: Callable[[Self], Array], pull: Callable[[], Array]) -> Array:
        """∂A[ψ]/∂parameter for any functional A of single sites, in the shape of `parameter_derivative`.

        Parameters
        ----------
        name : str
            A parameter in `free`.
        value : callable
            A of a block of the same family, one number per site.
        pull : callable
            A[ψ′] of this block, its slope when x moves; a family for which that is not enough does not call it.
        """
        self._refuse_fixed(name)
        return self._difference(name, value)

    @property
    def observed(self) -> Array:
        """The stored observations; those of the base of a family around another."""
        holder: Any = getattr(self, "base", self)
        return np.asarray(getattr(holder, self.observation[0]), dtype=float)

    def value_of(self, name: str) -> Any:
        """The value of a parameter in `free`."""
        return self._value_of(name)

    def replace(self, **values: Any) -> Self:
        """The same family with some of the constructor's arguments replaced."""
        return type(self)(**({name: getattr(self, name) for name in self.parameters} | values))

    def observe(self, y: ArrayLike) -> Self:
        """The same family with the observation replaced."""
        return self.replace(**{self.observation[0]: y})

    def select(self, index: ArrayLike | slice) -> Self:
        """The same family restricted to some of its sites (repeats allowed)."""
        block = copy.copy(self)
        for name in self.arrays:
            value = getattr(self, name)
            if np.ndim(value) > 0:
                object.__setattr__(block, name, value[index])
        return block

    # --- machinery ------------------------------------------------------------------------------

    def _store(self, **values: Any) -> None:
        """Set the attributes, once, in the constructor."""
        for name, value in values.items():
            object.__setattr__(self, name, value)
        common_length(**{name: values[name] for name in self.arrays})

    def __getstate__(self) -> dict[str, Any]:
        """What the block holds, without what it has made of that: copies, `select` among them, make it anew."""
        return {name: value for name, value in vars(self).items() if name != MADE}

    def _once(self, name: str, make: Callable[[], T]) -> T:
        """What `make` makes of the parameters, which never change: made once and kept."""
        kept: dict[str, T] = vars(self).setdefault(MADE, {})
        if name not in kept:
            kept[name] = make()
        return kept[name]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: make a new one instead of setting {name}")

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={_brief(getattr(self, name))}" for name in self.parameters)
        return f"{type(self).__name__}({inside})"

    def _refuse_fixed(self, name: str) -> None:
        if name not in self.free:
            known = ", ".join(self.free) or "none"
            raise ValueError(
                f"{name!r} is not a parameter of {type(self).__name__} that can be learnt; these are: {known}"
            )

    def _difference(self, name: str, f: Callable[[Self], Array]) -> Array:
        """∂f/∂parameter by central differences in its free coordinates."""
        span, value = self.free[name], np.asarray(self.value_of(name), dtype=float)
        t, slope = span.to_free(value), span.slope(value)

        def along(direction: Array | float) -> Array:
            return quadrature.central_slope(lambda h: f(self.replace(**{name: span.from_free(t + h * direction)})))

        if slope.ndim == value.ndim:
            return along(1.0) / slope
        # ∂f/∂t = Jᵀ ∂f/∂value with J = ∂value/∂t
        lines = np.stack([along(unit) for unit in np.eye(t.size)])
        return np.tensordot(np.linalg.inv(slope).T, lines, axes=1)

    def _value_of(self, name: str) -> Any:
        """The value of a parameter in `free`; a family around another asks that."""
        return getattr(self, name)

    def _no_predictive(self) -> NoReturn:
        raise ValueError(f"{type(self).__name__} does not describe observations: it has no predictive distribution")

    def _flat(self, **arguments: ArrayLike) -> tuple[Self, list[Array], tuple[int, ...]]:
        """Check the arguments, spread them to one shape (..., sites), flatten them and the sites alike."""
        arrays = {name: float_array(name, value) for name, value in arguments.items()}
        for name, array in arrays.items():
            # where a sum of squares is finite, so are its parts
            if not np.isfinite(np.vdot(array, array)) and not np.all(np.isfinite(array)):
                raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)].flat[0]}")
            if name != "mean" and array.size and array.min() < 0:
                raise ValueError(f"{name} must not be negative, got {array.min():g}")
        sites = () if (size := self.size) is None else (size,)
        if all(array.shape == sites for array in arrays.values()) and sites:
            return self, [np.ascontiguousarray(array) for array in arrays.values()], sites
        try:
            shape = np.broadcast_shapes(*(array.shape for array in arrays.values()), sites)
        except ValueError as error:
            found = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
            raise ValueError(f"shapes do not match: {found}, {size or 'any number of'} sites") from error
        if size is not None and shape[-1] != size:
            raise ValueError(f"the last axis of {' and '.join(arrays)} must have {size} sites, got shape {shape}")
        flat = [np.ascontiguousarray(np.broadcast_to(array, shape)).ravel() for array in arrays.values()]
        if size is None or len(shape) == 1:
            return self, flat, shape
        return self.select(np.tile(np.arange(size), flat[0].size // size)), flat, shape

    def _in_blocks(self, function: Any, *arrays: Array) -> list[Array]:
        """Apply function(block, *arrays) to some hundred sites at a time: their nodes fit in the cache."""
        n = arrays[0].size
        pieces = [slice(i, i + SITES_PER_PIECE) for i in range(0, max(n, 1), SITES_PER_PIECE)]
        parts = [function(self.select(piece), *(array[piece] for array in arrays)) for piece in pieces]
        return [np.concatenate(part) for part in zip(*parts, strict=True)]

    def _derivative_block(self, m: Array, v: Array) -> tuple[Array, Array, Array]:
        """∂/∂m⟨ψ⟩ = ⟨ψ′⟩ and ∂/∂v⟨ψ⟩ = ½⟨ψ″⟩, for smooth ψ."""
        x, _, w = quadrature.gaussian_nodes(m, np.sqrt(v), self.regions())
        first, second, _ = self.derivatives(x)
        value, d_mean, d_var = (np.einsum("ks,ks->s", w, f) for f in (self.log_density(x), first, second))
        return value, d_mean, 0.5 * d_var

    def _weighted_block(self, m: Array, v: Array) -> tuple[Array, Array, Array]:
        """∂/∂m⟨ψ⟩ = ⟨zψ⟩/s and ∂/∂v⟨ψ⟩ = ⟨(z² − 1)ψ⟩/(2s²), for a ψ with a kink or unknown derivatives."""
        s = np.sqrt(v)
        x, z, w = quadrature.gaussian_nodes(m, s, self.regions())
        # constants drop out of the derivatives: take them out before they cancel
        constant = self.log_density(m)
        psi = w * (self.log_density(x) - constant)
        some = np.maximum(s, quadrature.TINY_SD)
        d_mean = np.einsum("ks,ks->s", psi, z) / some
        d_var = 0.5 * np.einsum("ks,ks->s", psi, z * z - 1) / some / some
        if np.any(v == 0):
            first, second, _ = self.derivatives(m)
            d_mean, d_var = np.where(v == 0, first, d_mean), np.where(v == 0, 0.5 * second, d_var)
        return psi.sum(axis=0) + constant, d_mean, d_var

    def _tilted_block(self, m: Array, v: Array, power: Array) -> tuple[Array, Array, Array]:
        s, regions = np.sqrt(v), (*self.regions(), *self._peaks(m, v, power))
        z, log_w = quadrature.tilted_nodes(lambda x: power * self.log_density(x), m, s, regions, self.log_concave)
        log_z, centre, spread = quadrature.moments(z, log_w)
        return log_z, m + s * centre, v * spread


def _brief(value: Any) -> str:
    """A parameter in a few characters."""
    if not isinstance(value, np.ndarray) or value.ndim == 0:
        return f"{value:g}" if isinstance(value, np.ndarray) else repr(value)
    if value.size <= 4:
        return np.array2string(value, separator=", ", precision=4)
    return f"<{' × '.join(map(str, value.shape))} values, {value.min():g} … {value.max():g}>"
