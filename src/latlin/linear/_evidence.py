"""What a linear fit is: a posterior with its hyperparameters, how far a search for these goes, and where they lie."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from latlin.hyper.table import HyperparameterTable
from latlin.inference.posterior import Posterior
from latlin.linear._problem import Problem
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable
from latlin.potentials.ranges import Positive, Range


class Accuracy(NamedTuple):
    """How far a search goes.

    Parameters
    ----------
    gradient : float
        Largest derivative of the log evidence in a log hyperparameter at the end, in nat.
    gain : float
        Least relative gain in log evidence that is worth another fit.
    """

    gradient: float = 1e-2
    gain: float = 1e-10


PLAIN = Accuracy()


@storable
class Share(NamedTuple):
    """One component of a posterior that is averaged over hyperparameters: its weight and their values."""

    weight: float
    values: dict[str, Any]


@storable
class Fit(NamedTuple):
    """A posterior and the hyperparameters it belongs to.

    Parameters
    ----------
    posterior : Posterior
        A mixture where hyperparameters are integrated.
    values : dict
        Hyperparameters by name: given, at their optimum, or their posterior means.
    n_fits : int
    shares : tuple of Share
        Those of the components of a mixture, in their order; empty otherwise.
    table : HyperparameterTable or None
    """

    posterior: Posterior
    values: dict[str, Any]
    n_fits: int = 1
    shares: tuple[Share, ...] = ()
    table: HyperparameterTable | None = None

    @property
    def weights(self) -> Array:
        """Those of the components of a mixture."""
        return np.array([share.weight for share in self.shares])


def ranges_of(problem: Problem) -> dict[str, Range]:
    """Where each hyperparameter is sought."""
    unit = problem.unit
    return {
        "prior_scale": Positive(unit, 1e-4 * unit, 1e3 * unit),
        **problem.family.ranges(unit),
        **problem.prior.ranges(),
    }
