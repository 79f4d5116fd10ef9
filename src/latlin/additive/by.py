"""Interactions by a column: one copy of a field per label, or a field that a number multiplies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from latlin.additive.expression import evaluate, is_name
from latlin.additive.frame import Column, codes_of, column, is_labelled, levels_of
from latlin.additive.intrinsic import IntrinsicPart
from latlin.additive.places import indicator, row_products
from latlin.additive.term import Part, PartPrior, PredictorRows, Slope, Surroundings, Values
from latlin.hyper.space import Hyperparameter
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable


def vary_field(by: str | None, frame: Any, around: Surroundings, field: Callable[[Any, Surroundings], Part]) -> Part:
    """The field itself, a copy of it per label of `by`, or the field multiplied by the numbers of `by`.

    A field that numbers multiply is in units of the predictor per unit of these. It is a coefficient that varies, so
    that it has a mean of its own unless there is a coefficient of `by` already.
    """
    if by is None:
        return field(frame, around)
    if is_name(by) and is_labelled(frame, by):
        return CopiedPart(field(frame, around), by, levels_of(column(frame, by), f"column {by!r}"))
    size = float(np.sqrt(np.mean(evaluate(by, frame) ** 2))) or 1.0
    part = field(frame, replace(around, unit=around.unit / size))
    if isinstance(part, IntrinsicPart) and by not in around.coefficients:
        part = part.with_mean()
    return MultipliedPart(part, by)


def _renamed(hyper: Hyperparameter, old: str, new: str) -> Hyperparameter:
    return replace(hyper, name=hyper.name.replace(old, new))


@dataclass(frozen=True)
class VaryingPart(Part):
    """A field that varies with a column `by`; its hyperparameters are those of the field, under another label."""

    part: Part
    by: str

    @property
    def label(self) -> str:  # type: ignore[override]
        return f"{self.part.label}:{self.by}"

    @property
    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        return tuple(_renamed(hyper, self.part.label, self.label) for hyper in self.part.hyperparameters)

    def _inner(self, values: Values) -> dict[str, float]:
        """The values by the names that the field itself has for them."""
        pairs = zip(self.part.hyperparameters, self.hyperparameters, strict=True)
        return {inner.name: values[outer.name] for inner, outer in pairs}


@storable
@dataclass(frozen=True)
class CopiedPart(VaryingPart):
    """One field per label, with common hyperparameters: w = (w_1, …, w_L), Q = I_L ⊗ Q_1."""

    levels: Column

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{name}:{self.by}[{level}]" for level in self.levels.tolist() for name in self.part.names)

    @property
    def constraint(self) -> sparse.csr_array | None:
        A = self.part.constraint
        return None if A is None else sparse.csr_array(sparse.kron(sparse.eye_array(len(self.levels)), A))

    @property
    def mean(self) -> Array:
        return np.tile(self.part.mean, len(self.levels))

    def rows(self, frame: Any, values: Values) -> PredictorRows:
        codes = codes_of(column(frame, self.by), self.levels, f"column {self.by!r}")
        if np.any(codes < 0):
            raise ValueError(f"column {self.by!r} holds labels that {self.label} has no field for")
        design, fresh = self.part.rows(frame, self._inner(values))
        which = indicator(codes, len(self.levels))
        return PredictorRows(row_products(which, design), None if fresh is None else row_products(which, fresh))

    def prior(self, values: Values) -> PartPrior:
        precision, constant = self.part.prior(self._inner(values))
        count = len(self.levels)
        return PartPrior(sparse.kron(sparse.eye_array(count), precision, format="csc"), count * constant)

    def slopes(self, values: Values) -> dict[str, Slope]:
        count = len(self.levels)
        return {
            name.replace(self.part.label, self.label): Slope(
                sparse.kron(sparse.eye_array(count), slope.precision, format="csc"), count * slope.log_normaliser
            )
            for name, slope in self.part.slopes(self._inner(values)).items()
        }

    def report(self) -> sparse.csr_array:
        return sparse.csr_array(sparse.kron(sparse.eye_array(len(self.levels)), self.part.report()))


@storable
@dataclass(frozen=True)
class MultipliedPart(VaryingPart):
    """A field that a number of the row multiplies: a coefficient that varies."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{name}:{self.by}" for name in self.part.names)

    @property
    def constraint(self) -> sparse.csr_array | None:
        return self.part.constraint

    @property
    def mean(self) -> Array:
        return self.part.mean

    def rows(self, frame: Any, values: Values) -> PredictorRows:
        design, fresh = self.part.rows(frame, self._inner(values))
        by = sparse.diags_array(evaluate(self.by, frame))
        return PredictorRows(sparse.csr_array(by @ design), None if fresh is None else sparse.csr_array(by @ fresh))

    def prior(self, values: Values) -> PartPrior:
        return self.part.prior(self._inner(values))

    def slopes(self, values: Values) -> dict[str, Slope]:
        found = self.part.slopes(self._inner(values))
        return {name.replace(self.part.label, self.label): slope for name, slope in found.items()}

    def report(self) -> sparse.csr_array:
        return self.part.report()
