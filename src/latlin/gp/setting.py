"""What is learnt of a Gaussian process: kernel, likelihood with free parameters, units of the latent function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.gaussian_process.kernels import Kernel

from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable
from latlin.potentials.base import Potential
from latlin.potentials.families import FAMILIES, Family, Ordered
from latlin.potentials.ranges import Positive, Range

# --- From a name to a potential, and its free parameters as an unconstrained vector for evidence maximisation.
#
# What is free, and between which ends, is declared by the potential. Gradients come as one number per site (or per cut)
# and are carried over by the chain rule of the ranges.


#: first scale of a named likelihood, in standard deviations of the targets
FIRST_SCALE = 0.3
#: largest share of the mean prior variance that is added to the diagonal of K when it is numerically singular
MAX_JITTER = 1e-6
#: new inputs whose kernel rows are formed together
PIECE = 2000
#: families of labels, which have a process of their own
LABELS = ("logit", "probit")


@storable
@dataclass(frozen=True)
class Likelihood:
    """A family with its parameters; `ranges` are of those that evidence maximisation may move."""

    template: Potential
    ranges: tuple[tuple[str, Range], ...]

    @classmethod
    def of(
        cls, template: Potential, fixed: Sequence[str] = (), ranges: Mapping[str, Range] | None = None
    ) -> Likelihood:
        """All parameters that a template declares free, but for those named and those that hold one number per site."""
        unknown = set(fixed) - set(template.parameters) - set(template.free)
        if unknown:
            raise ValueError(
                f"fixed_likelihood names {sorted(unknown)}, but {type(template).__name__} has {template.parameters}"
            )
        known = _ranges(template) if ranges is None else ranges
        return cls(template, tuple((n, known[n]) for n in template.free if n not in fixed and _is_shared(template, n)))

    @property
    def free(self) -> tuple[str, ...]:
        """Names of the parameters that are learnt."""
        return tuple(name for name, _ in self.ranges)

    def _parts(self) -> list[Array]:
        return [np.atleast_1d(span.to_free(self.template.value_of(name))) for name, span in self.ranges]

    @property
    def theta(self) -> Array:
        return np.concatenate([np.zeros(0), *self._parts()])

    @property
    def bounds(self) -> Array:
        """Ends of a search; a value that was given beyond them is an end itself."""
        pairs = zip(self.ranges, self._parts(), strict=True)
        declared = np.concatenate([np.zeros((0, 2)), *(span.bounds(len(part)) for (_, span), part in pairs)])
        return np.column_stack([np.minimum(declared[:, 0], self.theta), np.maximum(declared[:, 1], self.theta)])

    @property
    def values(self) -> dict[str, Any]:
        """Parameters by name, without the observation."""
        skip = self.template.observation[0]
        return {n: getattr(self.template, n) for n in self.template.parameters if n != skip}

    def at(self, theta: Array) -> Likelihood:
        """The same family at other free parameters."""
        values = {
            name: span.from_free(part if np.ndim(self.template.value_of(name)) else part[0])
            for (name, span), part in zip(self.ranges, self._split(theta), strict=True)
        }
        return replace(self, template=self.template.replace(**values))

    def observe(self, y: ArrayLike) -> Potential:
        """The sites of targets, of shape (n,), or (n, columns) with what belongs to each row."""
        y, family = np.asarray(y, dtype=float), family_like(self.template)
        if y.ndim == 1 or family is None:
            return self.template.observe(y)
        return self.template.replace(**dict(zip(family.columns, y.T, strict=False)))

    def pull(self, gradients: Mapping[str, Array]) -> Array:
        """∂/∂theta from one derivative per site and parameter, or per component of a vector for all sites."""
        parts = [np.zeros(0)]
        for name, span in self.ranges:
            value, slope = self.template.value_of(name), np.asarray(gradients[name], float)
            parts.append(np.atleast_1d(span.chain(value, slope if np.ndim(value) else slope.sum())))
        return np.concatenate(parts)

    def _split(self, theta: Array) -> list[Array]:
        ends = np.cumsum([len(part) for part in self._parts()])
        return np.split(np.asarray(theta, float), ends[:-1]) if self.ranges else []


def family_like(template: Potential) -> Family | None:
    """The declared family of a potential, if there is one."""
    return next((family for family in FAMILIES.values() if type(family.template) is type(template)), None)


def _ranges(template: Potential) -> dict[str, Range]:
    """Where the parameters lie; the scale of a noise is sought around its first value, in the units of y."""
    found = dict(template.free)
    if template.location_scale and np.ndim(template.value_of("scale")) == 0:
        first = float(template.value_of("scale"))
        found["scale"] = Positive(first, 1e-4 * first, 1e4 * first)
    return found


def _is_shared(template: Potential, name: str) -> bool:
    """Whether all sites have one value of a parameter, which is then worth learning."""
    return np.ndim(template.value_of(name)) == 0 or name not in template.arrays


class _Targets(NamedTuple):
    """What families ask of observations."""

    y: Array

    def mean(self) -> float:
        return float(self.y.mean())

    def residual_moments(self) -> tuple[float, float]:
        return self.mean(), float(self.y.std())

    def log_exposure(self) -> None:
        return None

    def class_weights(self, count: int) -> Array:
        return np.bincount(self.y.astype(int), minlength=count).astype(float)


def target_scale(y: Array) -> float:
    """Standard deviation; of constant targets, which have one of rounding only, their size, or one."""
    return FAMILIES["gaussian"].unit(_Targets(y))


def _starting(family: Family, y: Array, given: Mapping[str, Any]) -> Potential:
    """The template at the values that were given, the others as the targets suggest."""
    if isinstance(family, Ordered) and "cuts" not in given:
        if np.any(y != np.round(y)) or y.min() < 0:
            raise ValueError("y must hold classes 0, 1, 2, … for likelihood 'ordinal'")
        shares = np.bincount(y.astype(int)).cumsum()[:-1] / len(y)
        # the probit of the frequencies, widened by a latent function of variance one
        cuts = np.sqrt(2.0) * ndtri(np.clip(shares, 0.5 / len(y), 1.0 - 0.5 / len(y)))
        given = {"cuts": np.maximum.accumulate(cuts) + 1e-3 * np.arange(len(cuts))} | dict(given)
    first = {} if isinstance(family, Ordered) else family.first(_Targets(y), FIRST_SCALE)
    return family.template.replace(**(first | dict(given)))


def resolve_likelihood(
    likelihood: str | Potential, given: Mapping[str, Any] | None, fixed: Sequence[str], y: Array
) -> tuple[Likelihood, Array]:
    """A likelihood from a name (with starting values) or from a potential whose observation is to be replaced.

    What belongs to each row, such as its trials, comes back as further columns of the targets: new rows have one trial.
    """
    if not isinstance(fixed, Sequence) or isinstance(fixed, str):
        raise ValueError(f"fixed_likelihood must be a sequence of names of parameters, got {fixed!r:.80}")
    if isinstance(likelihood, Potential):
        if given:
            raise ValueError("likelihood_params is for named likelihoods; a potential brings its own parameters")
        return _of_potential(likelihood, fixed, y)
    numeric = {name: family for name, family in FAMILIES.items() if name not in LABELS}
    if not isinstance(likelihood, str) or likelihood not in numeric:
        known = ", ".join(map(repr, numeric))
        raise ValueError(f"likelihood must be one of {known} or a potential, got {likelihood!r:.80}")
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(f"likelihood_params must be a dict of first values, got {given!r:.80}")
    family, given = numeric[likelihood], given or {}
    own = {name: given[name] for name in family.columns[1:] if np.ndim(given.get(name, 0.0))}
    try:
        template = _starting(family, y, {name: value for name, value in given.items() if name not in own})
    except TypeError as error:
        raise ValueError(f"likelihood_params {sorted(given)} do not fit likelihood {likelihood!r}") from error
    return Likelihood.of(template, fixed), _with_columns(y, family, template, own)


def _of_potential(potential: Potential, fixed: Sequence[str], y: Array) -> tuple[Likelihood, Array]:
    family = family_like(potential)
    own = {} if family is None else {n: v for n in family.columns[1:] if np.ndim(v := getattr(potential, n))}
    if family is None or not own:
        return Likelihood.of(potential, fixed), y
    plain = potential.replace(**{name: getattr(family.template, name) for name in own})
    return Likelihood.of(plain, fixed), _with_columns(y, family, plain, own)


def _with_columns(y: Array, family: Family, template: Potential, own: Mapping[str, Any]) -> Array:
    """Targets with columns beside them, in the order of the family, as far as there are any of one number per row."""
    if not own:
        return y
    for name, values in own.items():
        if np.shape(values) != y.shape:
            raise ValueError(f"{name} must have one number per row of X ({len(y)}), got shape {np.shape(values)}")
    names = family.columns[1:]
    last = max(names.index(name) for name in own)
    rows = [np.broadcast_to(np.asarray(own.get(n, getattr(template, n)), float), y.shape) for n in names[: last + 1]]
    return np.column_stack([y, *rows])


@storable
@dataclass(frozen=True)
class Setting:
    """Kernel, likelihood, and the units of the latent function: N(w | mean, amplitude² K).

    Parameters
    ----------
    kernel : scikit-learn kernel
    likelihood : Likelihood
    mean, amplitude : float
    """

    kernel: Any
    likelihood: Likelihood
    mean: float = 0.0
    amplitude: float = 1.0

    def check_stored(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise ValueError(f"kernel must be a kernel of scikit-learn, got {self.kernel!r:.80}")

    @property
    def theta(self) -> Array:
        """Free parameters: the kernel's, then the likelihood's."""
        return np.concatenate([self.kernel.theta, self.likelihood.theta])

    @property
    def bounds(self) -> Array:
        own = np.asarray(self.kernel.bounds, float).reshape(-1, 2)
        return np.concatenate([own, self.likelihood.bounds])

    def at(self, theta: Array) -> Setting:
        """The same at other free parameters; those of the kernel alone leave the likelihood as it is."""
        theta, split = np.asarray(theta, float), self.kernel.n_dims
        if theta.shape not in {(split,), (len(self.theta),)}:
            raise ValueError(
                f"theta must hold {split} kernel parameters and, if any, {len(self.theta) - split} of the likelihood, "
                f"got shape {theta.shape}"
            )
        kernel = self.kernel.clone_with_theta(theta[:split])
        if len(theta) == split:
            return replace(self, kernel=kernel)
        return replace(self, kernel=kernel, likelihood=self.likelihood.at(theta[split:]))

    def cross(self, new: Array, old: Array) -> Array:
        """Prior covariance between two sets of inputs."""
        return self.amplitude**2 * self.kernel(new, old)

    def diagonal(self, new: Array) -> Array:
        return self.amplitude**2 * self.kernel.diag(new)

    def prior(self, new: Array) -> Array:
        """Prior covariance of new inputs, white noise included."""
        return self.amplitude**2 * self.kernel(new)


def row_blocks(new: Array) -> Iterator[Array]:
    """New inputs whose kernel rows are formed together; one block, if an empty one, at least."""
    return (new[i : i + PIECE] for i in range(0, max(len(new), 1), PIECE))
