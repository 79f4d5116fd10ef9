"""What factorisations of tables share: options, the families and units of cells, ratings counted from zero, answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit

from latlin.factor.matrix.energies import Index
from latlin.factor.mixed.sites import ObservedColumn, family_of
from latlin.inference.diagnosis.dispersion import dispersion_about
from latlin.numerics.alerts import MisfitWarning, alert
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Rules
from latlin.numerics.options import check_choice, check_number, check_whole
from latlin.numerics.rng import RandomState
from latlin.potentials.families import AMOUNTS, COUNTS, Family, Ordered
from latlin.potentials.predictive import Predictive

REAL = ("gaussian", "student-t", "laplace", "cauchy", "logistic", "huber")
FAMILIES = (*REAL, "logit", "probit", "ordinal", "beta", *COUNTS, *AMOUNTS)
ENERGIES = ("bound", "moments")


class CellUnits:
    """The options that factorisations of tables have, and the way between cells and the scale they are fitted on."""

    centre_: float
    scale_: float
    levels_: Array
    likelihood_: dict[str, Any]
    parameters_: dict[str, Any]

    def __init__(
        self,
        n_components: int = 5,
        *,
        family: str = "gaussian",
        energy: str = "bound",
        tol: float = 1e-5,
        max_iter: int = 1000,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.family = family
        self.energy = energy
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def _rules(self) -> Rules:
        return Rules(self.tol, np.inf, self.max_iter, True, "raise max_iter or tol, or use fewer components")

    def _learn_cells(self, X: Array) -> tuple[NDArray[np.bool_], Array, dict[str, Any]]:
        """Where cells are observed, the cells on the scale of the fit, and parameters of the likelihood to start at."""
        seen = ~np.isnan(X)
        if not seen.any():
            raise ValueError("X must have at least one observed cell, got only NaN")
        self._learn_units(X[seen])
        values = self._encode(X)
        return seen, values, self._family.first(ObservedColumn(values[seen]), share=1.0)

    def _shift(self, seen: NDArray[np.bool_]) -> float:
        """log |dy/dcode| of all observed cells."""
        return float(seen.sum()) * float(np.log(self.scale_))

    def _look_at_counts(self, y: Array, moments: tuple[Array, Array]) -> None:
        """How counts vary about their means, where their family leaves that no freedom; `moments` of the products."""
        self.dispersion_, self.finding_ = np.nan, ""
        if wider := self._family.wider:
            found = dispersion_about(self._family.potential(y, self.likelihood_), *moments)
            self.dispersion_, self.finding_ = found.ratio, found.words(wider)
        if self.finding_:
            alert(self.finding_, MisfitWarning)

    def _describe_parameters(self) -> None:
        """Parameters of the likelihood in the units of the table."""
        self.parameters_ = dict(self.likelihood_)
        if "scale" in self.parameters_ and self.family in REAL:
            self.parameters_["scale"] *= self.scale_

    def _predictive_of(self, mean: Array, var: Array) -> Predictive:
        """Of cells with z ~ N(mean, var)."""
        return self._family.kind(self.likelihood_).predictive(mean, var)

    def _answer(self, found: Predictive, return_std: bool) -> Any:
        mean, std = self._moments(found)
        return (mean, std) if return_std else mean

    def _interval(self, found: Predictive, coverage: float) -> Array:
        """Intervals with the probability `coverage`, or what whole numbers have nearest to it: columns low and high."""
        ends = found.interval(check_number("coverage", coverage, above=0.0, below=1.0))
        return np.column_stack([self._decode(end) for end in ends])

    def _log_density(self, found: Predictive, y: ArrayLike) -> Array:
        return np.asarray(found.log_density(self._encode(np.asarray(y, dtype=float))) - np.log(self.scale_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        return tags

    def _check_options(self) -> None:
        check_choice("family", self.family, FAMILIES)
        check_choice("energy", self.energy, ENERGIES)
        check_whole("n_components", self.n_components, 1)
        check_number("tol", self.tol, least=0.0)

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


def check_positions(names: Sequence[str], given: Sequence[ArrayLike], sizes: Sequence[int]) -> list[Index]:
    """Places in a table, checked, as arrays of one length."""
    index = np.broadcast_arrays(*(np.atleast_1d(each) for each in given))
    for name, found, most in zip(names, index, sizes, strict=True):
        if found.dtype.kind not in "iu" or found.ndim != 1 or np.any((found < 0) | (found >= most)):
            raise ValueError(f"{name} must be whole numbers from 0 to {most - 1}, got {found!r:.80}")
    return list(index)


def codes_of(values: Array, family: Family) -> Array:
    """Cells on the scale of z, roughly: where the climb starts."""
    if family.link == "identity":
        return values
    if family.link == "ordered":
        return (values - np.nanmean(values)) / max(float(np.nanstd(values)), 1e-12)
    if family.link == "log":
        return np.log(np.maximum(values, 0.0) + (0.5 if np.nanmin(values) <= 0.0 else 0.0))
    return np.asarray(logit(0.15 + 0.7 * np.clip(values, 0.0, 1.0)))
