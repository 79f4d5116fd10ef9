"""From a name to a potential, and its parameters as an unconstrained vector for evidence maximisation.

Scales, degrees of freedom and shapes move on a logarithmic scale; cuts by their first value and the logarithms of the
gaps. Gradients come as one number a site (or a cut) and are carried over by the chain rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from latlin import potentials
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential

#: first scale of a named likelihood, in standard deviations of the targets
FIRST_SCALE = 0.3
FIRST_DF = 4.0


class Parameter(Protocol):
    """How one parameter of a potential is written as free numbers."""

    def encode(self, value: Array) -> Array: ...

    def decode(self, theta: Array) -> Any: ...

    def pull(self, theta: Array, gradient: Array) -> Array:
        """∂/∂theta from ∂/∂parameter."""
        ...

    def bounds(self, theta: Array) -> Array: ...


@dataclass(frozen=True)
class Logarithmic:
    """A positive number through its logarithm, within factors of its first value."""

    low: float = 1e-4
    high: float = 1e4

    def encode(self, value: Array) -> Array:
        return np.log(np.atleast_1d(value))

    def decode(self, theta: Array) -> float:
        return float(np.exp(theta[0]))

    def pull(self, theta: Array, gradient: Array) -> Array:
        return np.exp(theta) * gradient.sum()

    def bounds(self, theta: Array) -> Array:
        return theta[:, None] + np.log([self.low, self.high])


@dataclass(frozen=True)
class Cuts:
    """Increasing numbers through the first of them and the logarithms of the gaps."""

    def encode(self, value: Array) -> Array:
        return np.concatenate([value[:1], np.log(np.diff(value))])

    def decode(self, theta: Array) -> Array:
        return np.cumsum(np.concatenate([theta[:1], np.exp(theta[1:])]))

    def pull(self, theta: Array, gradient: Array) -> Array:
        # ∂c_j/∂θ_i = ∂gap_i/∂θ_i for i ≤ j
        later = np.cumsum(gradient[::-1])[::-1]
        return later * np.concatenate([[1.0], np.exp(theta[1:])])

    def bounds(self, theta: Array) -> Array:
        return theta[:, None] + np.array([-10.0, 10.0])


PARAMETERS: dict[str, Parameter] = {
    "scale": Logarithmic(),
    "df": Logarithmic(0.25, 100.0),
    "shape": Logarithmic(0.5, 3.0),
    "cuts": Cuts(),
}


@dataclass(frozen=True)
class Likelihood:
    """A family with its parameters; `free` names those that evidence maximisation may move."""

    template: Potential
    free: tuple[str, ...]
    limits: tuple[Array, ...] = ()

    @classmethod
    def of(cls, template: Potential, fixed: Sequence[str] = ()) -> Likelihood:
        """All parameters of a template free, but for those named and those that hold one number a site."""
        unknown = set(fixed) - set(template.parameters)
        if unknown:
            raise ValueError(
                f"fixed_likelihood names {sorted(unknown)}, but {type(template).__name__} has {template.parameters}"
            )
        names = [n for n in template.parameters if n in PARAMETERS and n not in fixed]
        free = tuple(n for n in names if n == "cuts" or np.ndim(getattr(template, n)) == 0)
        limits = tuple(PARAMETERS[n].bounds(PARAMETERS[n].encode(getattr(template, n))) for n in free)
        return cls(template, free, limits)

    @property
    def theta(self) -> Array:
        parts = [PARAMETERS[name].encode(getattr(self.template, name)) for name in self.free]
        return np.concatenate([np.zeros(0), *parts])

    @property
    def bounds(self) -> Array:
        return np.concatenate([np.zeros((0, 2)), *self.limits])

    @property
    def values(self) -> dict[str, Any]:
        """Parameters by name, without the observation."""
        skip = self.template.observation[0]
        return {n: getattr(self.template, n) for n in self.template.parameters if n != skip}

    def at(self, theta: Array) -> Likelihood:
        """The same family at other free parameters."""
        values = {n: getattr(self.template, n) for n in self.template.parameters}
        for name, part in zip(self.free, self._split(theta), strict=True):
            values[name] = PARAMETERS[name].decode(part)
        return replace(self, template=type(self.template)(**values))

    def observe(self, y: ArrayLike) -> Potential:
        return self.template.observe(y)

    def pull(self, gradients: Mapping[str, Array]) -> Array:
        """∂/∂theta from one derivative a site and parameter."""
        parts = [
            PARAMETERS[name].pull(part, np.asarray(gradients[name], float))
            for name, part in zip(self.free, self._split(self.theta), strict=True)
        ]
        return np.concatenate([np.zeros(0), *parts])

    def _split(self, theta: Array) -> list[Array]:
        ends = np.cumsum([len(part) for part in self.limits])
        return np.split(np.asarray(theta, float), ends[:-1]) if self.free else []


def spread(y: Array) -> float:
    """Standard deviation; of constant targets, which have one of rounding only, their size, or one."""
    sd, size = float(y.std()), abs(float(y.mean()))
    return sd if sd > 1e-10 * size else size or 1.0


def _scaled(family: Callable[..., Potential], **more: Any) -> Callable[[Array, dict[str, Any]], Potential]:
    def build(y: Array, given: dict[str, Any]) -> Potential:
        return family(**({"scale": FIRST_SCALE * spread(y)} | more | given))

    return build


def _ordinal(y: Array, given: dict[str, Any]) -> Potential:
    if "cuts" not in given:
        if np.any(y != np.round(y)) or y.min() < 0:
            raise ValueError("y must hold classes 0, 1, 2, … for likelihood 'ordinal'")
        shares = np.bincount(y.astype(int)).cumsum()[:-1] / len(y)
        # the probit of the frequencies, widened by a latent function of variance one
        cuts = np.sqrt(2.0) * ndtri(np.clip(shares, 0.5 / len(y), 1.0 - 0.5 / len(y)))
        given = {"cuts": np.maximum.accumulate(cuts) + 1e-3 * np.arange(len(cuts))} | given
    return potentials.Ordinal(y, **given)


def _poisson(y: Array, given: dict[str, Any]) -> Potential:
    return potentials.Poisson(y, **given)


BUILDERS: dict[str, Callable[[Array, dict[str, Any]], Potential]] = {
    "gaussian": _scaled(potentials.Gaussian),
    "student-t": _scaled(potentials.StudentT, df=FIRST_DF),
    "laplace": _scaled(potentials.Laplace),
    "cauchy": _scaled(potentials.Cauchy),
    "logistic": _scaled(potentials.Logistic),
    "poisson": _poisson,
    "ordinal": _ordinal,
}


def resolve_likelihood(
    likelihood: str | Potential, given: Mapping[str, Any] | None, fixed: Sequence[str], y: Array
) -> Likelihood:
    """A likelihood from a name (with starting values) or from a potential whose observation is to be replaced."""
    if isinstance(likelihood, Potential):
        if given:
            raise ValueError("likelihood_params is for named likelihoods; a potential brings its own parameters")
        return Likelihood.of(likelihood, fixed)
    if likelihood not in BUILDERS:
        known = ", ".join(map(repr, BUILDERS))
        raise ValueError(f"likelihood must be one of {known} or a potential, got {likelihood!r}")
    try:
        template = BUILDERS[likelihood](y, dict(given or {}))
    except TypeError as error:
        raise ValueError(f"likelihood_params {sorted(given or {})} do not fit likelihood {likelihood!r}") from error
    return Likelihood.of(template, fixed)
