"""How several latent numbers become the probabilities of classes: by the softmax or by the multinomial probit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from latlin.numerics.arrays import Array
from latlin.potentials.multinomial_probit import expected_log_multinomial_probit, log_expected_multinomial_probit
from latlin.potentials.softmax import ClassExpectation, expected_log_softmax, log_expected_softmax


class ClassLink(NamedTuple):
    """A likelihood of several classes: the class is that of the largest f_k + noise.

    Parameters
    ----------
    name : str
    expected_log : callable
        A lower bound on ⟨log P(y | f)⟩ from means, covariances and labels of rows.
    log_probabilities : callable
        log P(y = k) for independent f_k, from their means and standard deviations.
    noise : callable
        Draws of the noise, from a generator and a shape.
    """

    name: str
    expected_log: Callable[[Array, Array, Array], ClassExpectation]
    log_probabilities: Callable[[Array, Array], Array]
    noise: Callable[[np.random.Generator, Any], Array]


def _gumbel(rng: np.random.Generator, shape: Any) -> Array:
    return rng.gumbel(size=shape)


def _normal(rng: np.random.Generator, shape: Any) -> Array:
    return rng.standard_normal(shape)


CLASS_LINKS: dict[str, ClassLink] = {
    "logit": ClassLink("softmax", expected_log_softmax, log_expected_softmax, _gumbel),
    "probit": ClassLink(
        "multinomial probit",
        expected_log_multinomial_probit,
        log_expected_multinomial_probit,
        _normal,
    ),
}
