"""What the numbers in the cells of a table mean: their family, their units, ratings counted from zero."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import logit

from latlin.factor.mixed.sites import family_of
from latlin.numerics.arrays import Array
from latlin.numerics.options import number, one_of, whole
from latlin.potentials.families import AMOUNTS, COUNTS, Family, Ordered

REAL = ("gaussian", "student-t", "laplace", "cauchy", "logistic", "huber")
FAMILIES = (*REAL, "logit", "probit", "ordinal", "beta", *COUNTS, *AMOUNTS)
ENERGIES = ("bound", "moments")


class CellUnits:
    """The options that cells have, and the way between the table and the scale on which it is fitted."""

    n_components: int
    family: str
    energy: str
    tol: float
    centre_: float
    scale_: float
    levels_: Array

    def _check_options(self) -> None:
        one_of("family", self.family, FAMILIES)
        one_of("energy", self.energy, ENERGIES)
        whole("n_components", self.n_components, 1)
        number("tol", self.tol, least=0.0)

    @property
    def _family(self) -> Family:
        family = family_of(self.family)
        return replace(family, n_classes=len(self.levels_)) if isinstance(family, Ordered) else family

    def _learn_units(self, y: Array) -> None:
        """Noises are fitted to cells of mean 0 and standard deviation 1; ratings are counted from 0."""
        self.centre_, self.scale_ = 0.0, 1.0
        self.levels_ = np.unique(y) if self.family == "ordinal" else np.zeros(0)
        if len(self.levels_) == 1:
            raise ValueError(f"X must hold at least two different ratings, got only {self.levels_[0]:g}")
        if self.family in REAL:
            self.centre_, spread = float(y.mean()), float(y.std())
            self.scale_ = spread if spread > 1e-10 * abs(self.centre_) else abs(self.centre_) or 1.0

    def _encode(self, X: Array) -> Array:
        if self.family != "ordinal":
            return (X - self.centre_) / self.scale_
        codes = np.searchsorted(self.levels_, X).astype(np.float64)
        known = np.minimum(codes, len(self.levels_) - 1).astype(int)
        strange = ~np.isnan(X) & (self.levels_[known] != X)
        if strange.any():
            raise ValueError(f"X must hold the ratings {self.levels_.tolist()}, got {X[strange].flat[0]:g}")
        return np.where(np.isnan(X), np.nan, codes)

    def _decode(self, y: Array) -> Array:
        return self.levels_[y.astype(int)] if self.family == "ordinal" else y * self.scale_ + self.centre_

    def _moments(self, found: Any) -> tuple[Array, Array]:
        """Means and standard deviations in the units of the table."""
        if self.family != "ordinal":
            return found.mean * self.scale_ + self.centre_, np.sqrt(found.variance) * self.scale_
        mean = found.probabilities @ self.levels_
        return mean, np.sqrt(np.maximum(found.probabilities @ self.levels_**2 - mean**2, 0.0))


def codes_of(values: Array, family: Family) -> Array:
    """Cells on the scale of z, roughly: where the climb starts."""
    if family.link == "identity":
        return values
    if family.link == "ordered":
        return (values - np.nanmean(values)) / max(float(np.nanstd(values)), 1e-12)
    if family.link == "log":
        return np.log(np.maximum(values, 0.0) + (0.5 if np.nanmin(values) <= 0.0 else 0.0))
    return np.asarray(logit(0.15 + 0.7 * np.clip(values, 0.0, 1.0)))
