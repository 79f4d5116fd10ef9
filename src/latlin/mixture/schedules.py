"""How long a step is at iteration t = 0, 1, …: decaying, exponential, constant, Adam.

Robbins–Monro steps s(t + τ)^−κ with κ in (½, 1] reach the optimum from unbiased gradients. The exponential steps
s·exp(−at) of Gutteridge (2021), §6.2 are summable: the iterate can stop short of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from latlin.numerics.linalg import Array
from latlin.numerics.options import resolve_choice
from latlin.numerics.stored import storable_by_arguments


class StepRule(Protocol):
    """Turns a gradient into a move; `memory` is whatever the rule must remember."""

    def start(self, size: int) -> Array: ...

    def move(self, gradient: Array, t: int, memory: Array) -> tuple[Array, Array]: ...


class _Scheduled:
    """A rule that multiplies the gradient by a length known in advance."""

    def length(self, t: int) -> float:
        raise NotImplementedError

    def start(self, size: int) -> Array:
        return np.zeros(0)

    def move(self, gradient: Array, t: int, memory: Array) -> tuple[Array, Array]:
        return self.length(t) * gradient, memory


@storable_by_arguments
@dataclass(frozen=True)
class RobbinsMonro(_Scheduled):
    """scale · (t + delay)^−exponent.

    >>> RobbinsMonro(scale=2.0, delay=4.0, exponent=0.5).length(0)
    1.0
    """

    scale: float = 1.0
    delay: float = 1.0
    exponent: float = 0.6

    def length(self, t: int) -> float:
        return float(self.scale * (t + self.delay) ** -self.exponent)


@storable_by_arguments
@dataclass(frozen=True)
class Exponential(_Scheduled):
    """scale · exp(−decay t), the schedule of Gutteridge (2021), §6.2."""

    scale: float = 1.0
    decay: float = 0.01

    def length(self, t: int) -> float:
        return float(self.scale * np.exp(-self.decay * t))


@storable_by_arguments
@dataclass(frozen=True)
class Constant(_Scheduled):
    """The same length for ever."""

    scale: float = 1.0

    def length(self, t: int) -> float:
        return self.scale


@storable_by_arguments
@dataclass(frozen=True)
class Adam:
    """Moves of about scale·(1 + t/slowdown)^−exponent per coordinate, by running means of gradient and square."""

    scale: float = 0.05
    slowdown: float = 300.0
    exponent: float = 0.6
    decay: float = 0.9
    square_decay: float = 0.999
    floor: float = 1e-8

    def start(self, size: int) -> Array:
        return np.zeros((2, size))

    def move(self, gradient: Array, t: int, memory: Array) -> tuple[Array, Array]:
        mean = self.decay * memory[0] + (1.0 - self.decay) * gradient
        square = self.square_decay * memory[1] + (1.0 - self.square_decay) * np.square(gradient)
        steady = mean / (1.0 - self.decay ** (t + 1))
        size = np.sqrt(square / (1.0 - self.square_decay ** (t + 1)))
        length = self.scale * (1.0 + t / self.slowdown) ** -self.exponent
        return length * steady / (size + self.floor), np.stack([mean, square])


SCHEDULES: dict[str, StepRule] = {
    "robbins-monro": RobbinsMonro(),
    "exponential": Exponential(),
    "constant": Constant(),
    "adam": Adam(),
}


def resolve_step(step: str | StepRule) -> StepRule:
    """A rule from its name, or the rule itself."""
    rule: StepRule = resolve_choice("step", step, SCHEDULES, "a schedule object", lambda own: hasattr(own, "move"))
    return rule
