"""Fields with an intrinsic precision: random walks, seasons, penalised splines, maps.

The field is kept away from the null space of its precision by constraints. A constant belongs to the intercept. What
else is in the null space, such as the slope of a second-order random walk, gets coefficients of its own with a wide
normal prior, so that the whole prior is proper and its evidence can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from latlin.additive.places import FieldPlace
from latlin.additive.structure import ScaledPrecision
from latlin.additive.term import Part, PartPrior, PredictorRows, Slope, Values, scaled_slope
from latlin.hyper.space import Hyperparameter
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable


@storable
@dataclass(frozen=True)
class IntrinsicPart(Part):
    """A field with precision R/sd² on nodes, and trends with a normal prior.

    Attributes
    ----------
    label : str
    place : Place
        How rows see the nodes.
    structure : Structure
        R, scaled.
    trends : array of shape (k, p)
        Fields of the null space that have coefficients.
    trend_names : tuple of str
    trend_scale : float
        Standard deviation of their prior.
    sd : Hyperparameter
    """

    label: str
    place: FieldPlace
    structure: ScaledPrecision
    trends: Array
    trend_names: tuple[str, ...]
    trend_scale: float
    sd: Hyperparameter

    @property
    def names(self) -> tuple[str, ...]:
        return (
            *(f"{self.label}[{node}]" for node in self.place.labels),
            *(f"{self.label}:{name}" for name in self.trend_names),
        )

    @property
    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        return (self.sd,)

    @property
    def constraint(self) -> sparse.csr_array | None:
        null = self.structure.null
        if not len(null):
            return None
        return sparse.csr_array(np.hstack([null, np.zeros((len(null), len(self.trends)))]))

    def rows(self, frame: Any, values: Values) -> PredictorRows:
        return PredictorRows(self.with_trends(self.place.rows(frame)))

    def with_trends(self, rows: sparse.csr_array) -> sparse.csr_array:
        """Rows over the nodes, and what they see of the trends."""
        if not len(self.trends):
            return rows
        return sparse.csr_array(sparse.hstack([rows, sparse.csr_array(rows @ self.trends.T)]))

    def prior(self, values: Values) -> PartPrior:
        sd, count = values[self.sd.name], len(self.trends)
        # N(b | 0, s²) for the trends
        wide = -count * (0.5 * np.log(2.0 * np.pi) + np.log(self.trend_scale)) if count else 0.0
        precision = self.structure.matrix / sd**2
        if count:
            ridge = sparse.eye_array(count) / self.trend_scale**2
            precision = sparse.block_diag([precision, ridge], format="csc")
        return PartPrior(sparse.csc_array(precision), self.structure.log_normaliser(sd) + wide)

    def slopes(self, values: Values) -> dict[str, Slope]:
        sd, count = values[self.sd.name], len(self.trends)
        field = scaled_slope(PartPrior(self.structure.matrix / sd**2, 0.0), self.structure.rank, sd)
        if not count:
            return {self.sd.name: field}
        zero = sparse.csc_array((count, count))
        return {self.sd.name: field._replace(precision=sparse.block_diag([field.precision, zero], format="csc"))}

    def report(self) -> sparse.csr_array:
        """The field at its nodes with the trends in it, then the coefficients of the trends."""
        field = self.with_trends(sparse.eye_array(self.structure.size, format="csr"))
        if not len(self.trends):
            return field
        count = len(self.trends)
        own = sparse.hstack([sparse.csr_array((count, self.structure.size)), sparse.eye_array(count)])
        return sparse.csr_array(sparse.vstack([field, own]))
