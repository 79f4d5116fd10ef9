"""What a term of an additive model is, and what it becomes on the rows of a training table.

A `Term` is a wish ("a random walk over weeks"). On a table it becomes a `Part`: a block of latent coefficients with a
sparse Gaussian prior, and rows that carry these coefficients into the linear predictor,

    η = offset + Σ_t H_t w_t,    w_t ~ N(μ_t, Q_t(θ)⁻¹)  on  A_t w_t = 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from latlin.hyper.space import Hyperparameter
from latlin.numerics.arrays import Array
from latlin.priors import HalfStudentT

Values = Mapping[str, float]
#: degrees of freedom and width, in units of the response, of the default prior of a standard deviation
SD_PRIOR = (3.0, 2.5)
#: standard deviation, in units of the response, of the default prior of a coefficient of a standardised column
COEFFICIENT_SCALE = 5.0


class PredictorRows(NamedTuple):
    """Rows of the linear predictor: η = design @ w + fresh @ z with z ~ N(0, I).

    The second part is what the training data do not know, such as the effect of a group that was not seen. It is None
    where there is no such part.
    """

    design: sparse.csr_array
    fresh: sparse.csr_array | None = None


class PartPrior(NamedTuple):
    """A part's prior at given hyperparameters.

    Attributes
    ----------
    precision : sparse matrix of shape (size, size)
    log_normaliser : float
        −log ∫ exp(−½(w − μ)ᵀQ(w − μ)) dw over the w with Aw = 0.
    """

    precision: sparse.csc_array
    log_normaliser: float


class Slope(NamedTuple):
    """Derivatives of a part's prior in one hyperparameter."""

    precision: sparse.csc_array
    log_normaliser: float


@dataclass(frozen=True)
class Surroundings:
    """What terms may ask besides the table.

    Attributes
    ----------
    unit : float
        Natural size of the linear predictor: the standard deviation of the response, or one on a link's scale.
    centre : float
        Where the linear predictor lies for the average row.
    graph : Graph or None
        Neighbours, for the terms on maps.
    priors : mapping
        The user's own priors by the name of a coefficient or hyperparameter.
    coefficients : tuple of str
        Names of the coefficients of the linear part.
    """

    unit: float = 1.0
    centre: float = 0.0
    graph: Any = None
    priors: Mapping[str, Any] | None = None
    coefficients: tuple[str, ...] = ()


class Term(ABC):
    """A wish: options only. `prepare` makes a `Part` of it."""

    def __post_init__(self) -> None:
        """Options that many terms have, in one place."""
        for name in {"row", "column", "by"} & set(vars(self)):
            given = getattr(self, name)
            several = given if isinstance(given, tuple) else (given,)
            if not all(isinstance(one, str) for one in several) and not (name == "by" and given is None):
                raise ValueError(f"{name} must be the name of a column or an expression of columns, got {given!r:.80}")
        if not isinstance(getattr(self, "cyclic", False), bool | np.bool_):
            raise ValueError(f"cyclic must be True or False, got {self.cyclic!r:.80}")  # type: ignore[attr-defined]

    @property
    @abstractmethod
    def label(self) -> str:
        """How formulas and tables call it."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns, and expressions of columns, that it reads."""
        given = [getattr(self, name, None) for name in ("pieces", "columns", "row", "column", "x", "y", "slopes", "by")]
        return tuple(one for each in given for one in (each if isinstance(each, tuple) else (each,)) if one is not None)

    @abstractmethod
    def prepare(self, frame: Any, around: Surroundings) -> Part:
        """The block of coefficients on the rows of a training table."""


class Part(ABC):
    """A block of coefficients with its prior."""

    label: str

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """One name per coefficient."""

    @property
    def size(self) -> int:
        """Number of coefficients."""
        return len(self.names)

    @property
    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        """The numbers that its prior depends on."""
        return ()

    @property
    def constraint(self) -> sparse.csr_array | None:
        """A of A w = 0, or None."""
        return None

    @property
    def mean(self) -> Array:
        """The prior mean."""
        return np.zeros(self.size)

    @property
    def flat(self) -> int:
        """The number of coefficients with a flat prior, which has no normaliser."""
        return 0

    @abstractmethod
    def rows(self, frame: Any, values: Values) -> PredictorRows:
        """The rows of a table, seen or unseen."""

    def apart(self, frame: Any, values: Values) -> PredictorRows:
        """The rows as if no level of this part had been seen: what is averaged over in a marginal prediction."""
        raise ValueError(f"{self.label} has no levels to average over; marginal= names group terms")

    @abstractmethod
    def prior(self, values: Values) -> PartPrior:
        """The prior at given hyperparameters."""

    def slopes(self, values: Values) -> dict[str, Slope]:
        """Derivatives of the prior, by the name of the hyperparameter."""
        return {}

    def report(self) -> sparse.csr_array:
        """Rows that turn the coefficients into the named numbers of a summary."""
        return sparse.eye_array(self.size, format="csr")


def standard_deviation(name: str, unit: float) -> Hyperparameter:
    """A standard deviation with the default prior, a half Student t of three degrees of freedom.

    >>> standard_deviation("sd(g)", 2.0).prior
    HalfStudentT(df=3, scale=5)
    """
    df, width = SD_PRIOR
    return Hyperparameter(name, 0.5 * unit, HalfStudentT(df, width * unit), bounds=(1e-4 * unit, 1e3 * unit))


def scaled_slope(prior: PartPrior, rank: int, sd: float) -> Slope:
    """The slope in sd of a precision R/sd² of given rank.

    ∂Q/∂sd = −2Q/sd and ∂ log normaliser/∂sd = −rank/sd.
    """
    return Slope(prior.precision * (-2.0 / sd), -rank / sd)
