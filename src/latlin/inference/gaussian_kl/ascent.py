"""Full-covariance Gaussian KL: accelerated natural-gradient steps, safeguarded by the bound, in any coordinates.

    B(m, S) = Σ_n ⟨ψ_n(x)⟩_{N(x|m_n, s_n²)} + ⟨log Gaussian factors⟩ + ½ log det(2πe S) ≤ log Z

Challis (2013), eq. 4.2.1, corrected. At a stationary point S⁻¹ = Λ + HᵀΓH with Γ_nn = −2 ∂⟨ψ_n⟩/∂s_n²
((4.3.1)–(4.3.2), corrected), and going there is the natural-gradient step of length one. Anderson mixing extrapolates
these steps, in coordinates that keep two numbers per site (`latlin.inference.gaussian_kl.sites`) or the precision and
the mean (`latlin.inference.gaussian_kl.sums`). A step is taken only if the bound rises.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from latlin.numerics.arrays import Array
from latlin.numerics.ascent import (
    Ascent,
    Checkpoint,
    Measure,
    Rules,
    ascend,
    backtrack,
    gradient_or_distance,
    grain,
    may_be_rounding,
    mix,
    rounding,
)

#: past points that steps are extrapolated from; where a point has more than MANY numbers, of which copies are dear, FEW
MEMORY, MANY, FEW = 8, 500_000, 3
#: share of a natural-gradient step that is taken where a whole one fails
HALF = 0.5

Place = TypeVar("Place", bound=tuple)


class Reached(NamedTuple, Generic[Place]):
    """A Gaussian in some coordinates, its bound, the largest gradient entry, and past points with their residuals.

    The grain of the bound is what rounding of large terms adds to it; zero until it is measured.
    """

    place: Place
    bound: float
    gradient: float
    points: Array
    residuals: Array
    grain: float = 0.0


class Coordinates(Protocol[Place]):
    """A coordinate system for full Gaussians."""

    @property
    def first(self) -> float:
        """Share of the first natural-gradient step that is taken, while there is no past to extrapolate from."""
        ...

    def evaluate(self, place: Place) -> Reached[Place] | None:
        """The same Gaussian again, from its own parameters alone; None where there is no finite bound."""
        ...

    def encode(self, place: Place) -> tuple[Array, Array] | None:
        """The vector of a place and that of where its natural-gradient step leads; None where that is no Gaussian."""
        ...

    def decode(self, point: Array) -> Reached[Place] | None:
        """The Gaussian of a vector; None where there is none, or no finite bound."""
        ...

    def move(self, place: Place, length: float) -> Reached[Place] | None:
        """A share of the natural-gradient step."""
        ...

    def newton(self, now: Reached[Place]) -> Reached[Place] | None:
        """Newton's step, where there is one and the bound rises; else None."""
        ...

    def deviation(self, place: Place) -> float:
        """How far the natural gradient leads, in standard deviations and shares of the covariance."""
        ...


def begin_at(place: Place, bound: float, gradient: float, size: int) -> Reached[Place]:
    """A place without a past, in coordinates of this size."""
    empty = np.zeros((0, size))
    return Reached(place, bound, gradient, empty, empty)


def rises(proposal: Reached[Place] | None, now: Reached[Place]) -> bool:
    """Whether a proposal has at least the bound that was reached, up to rounding."""
    return proposal is not None and proposal.bound >= now.bound - _slack(now)


def _slack(now: Reached[Place]) -> float:
    return 1e-3 * rounding(now.bound) + now.grain


def maximise_bound(
    coordinates: Coordinates[Place],
    start: Reached[Place],
    rules: Rules,
    verbose: bool = False,
    checkpoint: Checkpoint | None = None,
    warn: bool = True,
) -> Ascent[Reached[Place]]:
    """Climb the Gaussian KL bound."""

    def step(now: Reached[Place]) -> tuple[Reached[Place], Measure]:
        moved = coordinates.newton(now) or extrapolate(coordinates, now)
        if moved is None:
            moved = _shorten(coordinates, now) or now
            if may_be_rounding(moved.bound - now.bound, now.bound, now.grain, moved.gradient, now.gradient):
                now = now._replace(grain=_grain(coordinates, now))
                moved = coordinates.newton(now) or extrapolate(coordinates, now) or moved
        gain, size = moved.bound - now.bound, moved.gradient
        if size > rules.gradient_tol:
            away = lambda: coordinates.deviation(moved.place)  # noqa: E731
            size = gradient_or_distance(size, now.gradient, gain, now.bound, away, now.grain)
        moved = moved if moved.grain == now.grain else moved._replace(grain=now.grain)
        return moved, Measure(moved.bound, size, now.grain)

    def bound(now: Reached[Place]) -> float:
        again = coordinates.evaluate(now.place)
        return -np.inf if again is None else again.bound

    return ascend(
        *(step, start, rules), label="Gaussian KL", verbose=verbose, checkpoint=checkpoint, warn=warn, evaluate=bound
    )


def _grain(coordinates: Coordinates[Place], now: Reached[Place]) -> float:
    """How far rounding alone moves the bound here."""

    def bound(point: Array) -> float | None:
        moved = coordinates.decode(point)
        return None if moved is None else moved.bound

    pair = coordinates.encode(now.place)
    return 0.0 if pair is None else grain(bound, pair[0], now.bound)


def extrapolate(coordinates: Coordinates[Place], now: Reached[Place]) -> Reached[Place] | None:
    """Anderson's proposal, if the bound rises there."""
    pair = coordinates.encode(now.place)
    if pair is None:
        return None
    here, target = pair
    memory = MEMORY if len(here) <= MANY else FEW
    residual = np.subtract(target, here, out=target)
    points, residuals = (
        np.concatenate([past[-memory:], new[None]]) if len(past) else new[None]
        for past, new in ((now.points, here), (now.residuals, residual))
    )
    damping = coordinates.first if len(points) == 1 else 1.0
    proposal = coordinates.decode(mix(points, residuals, damping))
    if proposal is None or not rises(proposal, now):
        return None
    return proposal._replace(points=points, residuals=residuals)


def _shorten(coordinates: Coordinates[Place], now: Reached[Place]) -> Reached[Place] | None:
    """The natural-gradient step, halved once (a whole one has just failed or would) and until the bound rises."""

    def evaluate(share: float) -> tuple[float, Reached[Place] | None]:
        trial = coordinates.move(now.place, HALF * share)
        return (-np.inf, None) if trial is None else (trial.bound, trial)

    found = backtrack(evaluate, now.bound, 0.0, slack=_slack(now), max_halvings=30)
    return None if found is None else found[2]
