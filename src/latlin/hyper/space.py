"""Named hyperparameters: where each may lie, its prior, and the unconstrained numbers in which a search moves.

A number above an end is sought by the logarithm of its distance from it, one between two ends by its logit, any other
by itself. A density in the number becomes one in the coordinate by the factor |dx/du|.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from latlin.inference.forms.sites import SiteParameters
from latlin.numerics.alerts import ConvergenceWarning
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_list, float_array
from latlin.numerics.progress import SILENT, Progress
from latlin.numerics.stored import storable
from latlin.priors.base import Flat, Prior

#: how far a search goes from its start when no bounds are given, as a factor and as a share of an interval
FAR, MARGIN = 1e6, 1e-6


@storable
@dataclass(frozen=True)
class Hyperparameter:
    """One number to learn.

    Parameters
    ----------
    name : str
    start : float
        Where a search begins.
    prior : Prior
        Of the number itself; `Flat` has no opinion.
    support : (float, float), optional
        Where the number may lie at all, ends excluded, such as (0, ∞) for scales and (−1, 1) for correlations: where
        the prior lives unless given, and above zero if that is flat.
    bounds : (float, float), optional
        Ends of the search, within the support: a factor of a million from the start unless given.
    """

    name: str
    start: float
    prior: Prior = field(default_factory=Flat)
    support: tuple[float, float] | None = None
    bounds: tuple[float, float] | None = None
    _ends: tuple[float, float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.prior, Prior):
            raise ValueError(f"prior of {self.name!r} must be one of latlin.priors, got {self.prior!r:.80}")
        for what in ("support", "bounds"):
            ends = getattr(self, what)
            if ends is not None and (np.ndim(ends) != 1 or len(float_array(what, ends)) != 2):
                raise ValueError(f"{what} of {self.name!r} must be two numbers, got {ends!r:.80}")
        usual = (0.0, np.inf) if isinstance(self.prior, Flat) else self.prior.support
        given = usual if self.support is None else tuple(map(float, self.support))
        low, high = max(given[0], self.prior.support[0]), min(given[1], self.prior.support[1])
        if not low < high:
            raise ValueError(f"{self.name!r} lies in {given}, but its prior {self.prior!r} has no mass there")
        object.__setattr__(self, "_ends", (float(low), float(high)))
        object.__setattr__(self, "support", self._ends)
        if isinstance(self.start, bool) or not isinstance(self.start, Real) or not low < self.start < high:
            raise ValueError(f"{self.name!r} must start between {low:g} and {high:g}, got {self.start!r:.80}")
        object.__setattr__(self, "start", float(self.start))
        object.__setattr__(self, "bounds", self._checked_bounds())

    def _checked_bounds(self) -> tuple[float, float]:
        low, high = self._ends
        if self.bounds is None:
            return self._distant_ends()
        least, most = (float(end) for end in self.bounds)
        if not least < most:
            raise ValueError(f"bounds of {self.name!r} must rise, got {self.bounds!r}")
        near, far = self._distant_ends()
        # an end of the support itself is never reached
        least, most = near if least <= low else least, far if most >= high else most
        if not least <= self.start <= most:
            raise ValueError(f"{self.name!r} must start within its bounds [{least:g}, {most:g}], got {self.start:g}")
        return least, most

    def _distant_ends(self) -> tuple[float, float]:
        low, high = self._ends
        if np.isfinite(low) and np.isfinite(high):
            return low + MARGIN * (high - low), high - MARGIN * (high - low)
        if np.isfinite(low):
            return low + (self.start - low) / FAR, low + (self.start - low) * FAR
        if np.isfinite(high):
            return high - (high - self.start) * FAR, high - (high - self.start) / FAR
        return -np.inf, np.inf

    def coordinate(self, x: float) -> float:
        """u, unconstrained."""
        low, high = self._ends
        if np.isfinite(low) and np.isfinite(high):
            return float(np.log(x - low) - np.log(high - x))
        if np.isfinite(low):
            return float(np.log(x - low))
        return float(-np.log(high - x)) if np.isfinite(high) else float(x)

    def value(self, u: Any) -> Any:
        """x at coordinate u, for numbers and arrays."""
        low, high = self._ends
        if np.isfinite(low) and np.isfinite(high):
            return low + (high - low) * 0.5 * (1.0 + np.tanh(0.5 * u))
        if np.isfinite(low):
            return low + np.exp(u)
        return high - np.exp(-u) if np.isfinite(high) else u + 0.0

    def slope(self, u: Any) -> Any:
        """dx/du, for numbers and arrays."""
        low, high = self._ends
        if np.isfinite(low) and np.isfinite(high):
            return (high - low) * 0.25 / np.cosh(0.5 * u) ** 2
        if np.isfinite(low):
            return np.exp(u)
        return np.exp(-u) if np.isfinite(high) else np.ones_like(u)

    def bend(self, u: float) -> float:
        """d log|dx/du| / du."""
        low, high = self._ends
        if np.isfinite(low) and np.isfinite(high):
            return float(-np.tanh(0.5 * u))
        return 1.0 if np.isfinite(low) else -1.0 if np.isfinite(high) else 0.0


@dataclass(frozen=True)
class Space:
    """Several hyperparameters together; a point u has one coordinate for each, in their order."""

    members: Sequence[Hyperparameter]

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", tuple(check_list("members", self.members, "Hyperparameter")))
        if not all(isinstance(member, Hyperparameter) for member in self.members):
            raise ValueError(f"members must be a list of Hyperparameter, got {self.members!r:.80}")
        names = [member.name for member in self.members]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"members must be hyperparameters of different names, and there must be some, got {names}")

    def __len__(self) -> int:
        return len(self.members)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    @property
    def normalised(self) -> bool:
        """Whether every prior is a density."""
        return all(member.prior.normalised for member in self.members)

    @property
    def start(self) -> Array:
        return np.array([member.coordinate(member.start) for member in self.members])

    @property
    def box(self) -> Array:
        """Ends of the coordinates, one row for each."""
        ends = [[m.coordinate(end) if np.isfinite(end) else end for end in m.bounds or ()] for m in self.members]
        return np.array(ends)

    def values(self, u: Array) -> dict[str, float]:
        """The numbers at a point, within their bounds to the last digit."""
        found = {}
        for member, t in zip(self.members, u, strict=True):
            low, high = member.bounds or (-np.inf, np.inf)
            found[member.name] = float(min(max(member.value(float(t)), low), high))
        return found

    def natural(self, points: Array) -> Array:
        """The numbers at many points, one per row."""
        return np.stack([m.value(points[:, j]) for j, m in enumerate(self.members)], axis=1)

    def log_prior(self, u: Array, *, volume: bool) -> tuple[float, Array]:
        """Σ log p(x), with Σ log|dx/du| for the density of u where `volume`, and the derivatives in u."""
        total, gradient = 0.0, np.empty(len(self))
        for j, (member, t) in enumerate(zip(self.members, map(float, u), strict=True)):
            x, slope = float(member.value(t)), member.slope(t)
            total += float(member.prior.log_density(x))
            gradient[j] = float(member.prior.slope(x)) * slope
            if volume:
                total += float(np.log(slope))
                gradient[j] += member.bend(t)
        return total, gradient

    def pull(self, u: Array, slopes: Mapping[str, float]) -> Array:
        """Derivatives in u from those in the numbers."""
        return np.array([slopes[m.name] * m.slope(float(t)) for m, t in zip(self.members, u, strict=True)])


# --- Log evidence plus log prior in unconstrained coordinates; each fit starts from the nearest before it.


#: largest distance in coordinates over which a fit is taken as a start
NEAR = 2.0
#: largest share that a fit has in what is foreseen, and how far that may be off, in distances to the nearest fit
FARTHEST, ASTRAY = 3.0, 0.3
#: step of differences of the evidence where nobody gives its gradient
STEP = 1e-3
#: least curvature, in nat, that a held fit may say
LEAST = 1e-3


class Evaluation(NamedTuple):
    """What is found at some values of the hyperparameters.

    Attributes
    ----------
    log_evidence : float
    gradient : mapping or None
        Name → derivative of the log evidence in the number itself; None where there is none, and then differences of
        the evidence serve.
    fit : object
        What was fitted there, such as a `Posterior`; a later evaluation may start from it.
    held : callable or None
        Values by name → the gradient there with this fit held, which costs no fit; it gives a search its curvature.
    """

    log_evidence: float
    gradient: Mapping[str, float] | None
    fit: Any
    held: Callable[[dict[str, float]], Mapping[str, float]] | None = None


#: (values by name, a fit to start from or None, whether the gradient is wanted) → Evaluation
Evaluate = Callable[[dict[str, float], Any, bool], Evaluation]


class Point(NamedTuple):
    """A point with everything found there; `log_density` is log evidence + log prior, of u where volumes count."""

    u: Array
    log_density: float
    log_evidence: float
    fit: Any
    held: Any = None


@dataclass
class Objective:
    """What is maximised or integrated.

    Parameters
    ----------
    space : Space
    evaluate : callable
        See `Evaluate`. A ValueError after the first point is a wall: the density is zero there.
    volume : bool
        Whether the density is that of the coordinates (for integrals) or of the numbers (for optima).
    bar : Progress
    """

    space: Space
    evaluate: Evaluate
    volume: bool
    bar: Progress = SILENT
    points: list[Point] = field(default_factory=list)
    n_fits: int = 0
    #: whether fits are kept for mixtures
    keep: bool = False

    @property
    def best(self) -> Point:
        return max(self.points, key=lambda point: point.log_density)

    def at(self, u: Array) -> Point:
        """The point, without a gradient."""
        return self._evaluated(u, False)[0]

    def with_gradient(self, u: Array) -> tuple[Point, Array]:
        """The point and the gradient of its log density in u."""
        point, slopes = self._evaluated(u, True)
        prior = self.space.log_prior(u, volume=self.volume)[1]
        if not np.isfinite(point.log_density):
            return point, np.zeros(len(u))
        if slopes is None:
            return point, self._differences(u) + prior
        return point, self.space.pull(u, slopes) + prior

    def with_slope(self, u: Array) -> tuple[Point, Array | None]:
        """The point, and the gradient of its log density in u where it costs no other fits."""
        point, slopes = self._evaluated(u, True)
        if slopes is None or not np.isfinite(point.log_density):
            return point, None
        return point, self.space.pull(u, slopes) + self.space.log_prior(u, volume=self.volume)[1]

    def held_gradient(self, point: Point, u: Array) -> Array:
        """The gradient of the log density at u with the fit of a point held."""
        prior = self.space.log_prior(u, volume=self.volume)[1]
        return self.space.pull(u, point.held(self.space.values(u))) + prior

    def held_curvature(self, point: Point, u: Array, slope: Array) -> Array:
        """Minus the Hessian at u, where the gradient is `slope`, with the fit of a point held; made definite."""
        rows = np.stack([(slope - self.held_gradient(point, u + step)) / STEP for step in STEP * np.eye(len(u))])
        values, vectors = np.linalg.eigh(0.5 * (rows + rows.T))
        return np.asarray((vectors * np.maximum(np.abs(values), LEAST)) @ vectors.T)

    def _differences(self, u: Array) -> Array:
        """Central differences of the log evidence."""
        found = np.empty(len(u))
        for j, step in enumerate(STEP * np.eye(len(u))):
            ahead, behind = (self._evaluated(v, False)[0].log_evidence for v in (u + step, u - step))
            found[j] = (ahead - behind) / (2.0 * STEP)
        return found

    def _evaluated(self, u: Array, slopes: bool) -> tuple[Point, Mapping[str, float] | None]:
        log_prior = self.space.log_prior(u, volume=self.volume)[0]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                value, gradient, fit, held = self.evaluate(self.space.values(u), self._nearby(u), slopes)
        except ValueError:
            if not self.points:
                raise
            return Point(np.array(u), -np.inf, -np.inf, None), None
        self.n_fits += 1
        self.bar.advance(f"log evidence {value:.6g}")
        total = float(value) + log_prior
        point = Point(np.array(u), total if np.isfinite(total) else -np.inf, float(value), fit, held)
        self._remember(point)
        return point, gradient

    def _remember(self, point: Point) -> None:
        """All points where they become a mixture; else the best and the last."""
        if self.keep or len(self.points) < 2:
            self.points.append(point)
        else:
            self.points = [self.best, point]

    def _nearby(self, u: Array) -> Any:
        """What the fits at the nearest points foresee at u, or the nearest one itself."""
        known = [point for point in self.points if point.fit is not None]
        if not known:
            return None
        apart = np.abs(np.stack([point.u for point in known]) - u).max(axis=1)
        near = [known[int(k)] for k in np.argsort(apart)[: 2 * len(u) + 1]]
        if apart.min() > NEAR:
            return None
        shares = _shares(np.stack([point.u for point in near]), u)
        return near[0].fit if shares is None else foresee_fit([point.fit for point in near], shares)


def foresee_fit(fits: list[Any], shares: Array) -> Any:
    """The first fit with its sites' stand-ins replaced by a mean of all, log γ and ν weighted by the shares.

    The fit itself where one has no stand-ins of its own, or has some that are not positive.
    """
    if "sites" not in getattr(fits[0], "__dataclass_fields__", {}):
        return fits[0]
    all_sites = [getattr(fit, "sites", None) for fit in fits]
    known = [sites for sites in all_sites if isinstance(sites, SiteParameters) and np.all(sites.gamma > 0.0)]
    if len(known) < len(fits) or len({len(sites.gamma) for sites in known}) > 1:
        return fits[0]
    with np.errstate(over="ignore", under="ignore"):
        log_gamma = sum(share * np.log(sites.gamma) for share, sites in zip(shares, known, strict=True))
        nu = sum(share * sites.nu for share, sites in zip(shares, known, strict=True))
        moved = SiteParameters(np.exp(log_gamma), np.asarray(nu))
    good = all(np.all(np.isfinite(part)) for part in moved) and np.all(moved.gamma > 0.0)
    return replace(fits[0], sites=moved) if good else fits[0]


def _shares(points: Array, u: Array) -> Array | None:
    """Shares λ with Σλ = 1 and Σλ_k u_k = u, those of near points the larger: a function that is linear is foreseen.

    They minimise Σ λ_k²|u_k − u|². None where the points do not span u, or only from far.
    """
    away = points - u
    squares = np.sum(away**2, axis=1)
    if len(points) < 2 or squares[0] == 0.0:
        return None
    A = np.vstack([np.ones(len(points)), away.T / np.sqrt(squares[0])])
    weighted = A / squares
    shares = weighted.T @ np.linalg.lstsq(weighted @ A.T, np.eye(len(A))[0])[0]
    left = A @ shares - np.eye(len(A))[0]
    good = abs(left[0]) <= 1e-6 and np.abs(left[1:]).max() <= ASTRAY and np.abs(shares).max() <= FARTHEST
    return np.asarray(shares) if good else None
