"""Full Gaussians in the coordinates of a sparse precision: the entries of HᵀΓH and the vector Hᵀν.

Where there are many sites for each entry of the precision, these say all that two numbers per site say, P = Λ + HᵀΓH
and Pm = b + Hᵀν, in far fewer numbers; steps mix and keep only them. The natural-gradient step of length one goes to
HᵀΓ̂H and Hᵀν̂ (Challis (2013), eqs. 4.3.1–4.3.2, corrected), found in one pass over the rows.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from latlin.densities.gaussian import Gaussian
from latlin.densities.sparse_precision import SparsePrecision, SparsePrecisionCovariance
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.forms.sparse import SparseForm
from latlin.inference.forms.sparse_rows import EntrySums
from latlin.inference.gaussian_kl.ascent import HALF, Reached, begin_at
from latlin.numerics.arrays import LOG_2PI, Array


class EntryPlace(NamedTuple):
    """HᵀΓH on the entries and Hᵀν of a Gaussian, and those of where its natural-gradient step leads."""

    entries: Array
    pull: Array
    entries_hat: Array
    pull_hat: Array


class EntryGaussian(NamedTuple):
    """The Gaussian of a place: its precision, mean (from the form's), sums over the sites, and their stand-ins here."""

    precision: SparsePrecision
    deviation: Array
    sums: EntrySums
    stand_ins: SiteParameters | None


#: mean share γs² of the sites in what is known of their projections up to which the first step is a whole one
SLIGHT = 0.1
#: entries with the Gaussian that they make
Seen = deque[tuple[Array, EntryGaussian]]


def gaussian_at(form: SparseForm, entries: Array, pull: Array) -> EntryGaussian | None:
    """The Gaussian of some coordinates, or None where there is no proper one or no finite bound."""
    precision = form.precision_with(entries)
    if precision is None:
        return None
    deviation = precision.solve(form.prior.linear + pull)
    found = form.entry_sums(deviation, precision.inverse_values)
    return None if found is None else EntryGaussian(precision, deviation, *found)


def evaluate(form: SparseForm, entries: Array, pull: Array, seen: Seen | None = None) -> Reached[EntryPlace] | None:
    """The place of some coordinates with its bound and gradient; None where there is none."""
    at = gaussian_at(form, entries, pull)
    if at is None:
        return None
    if seen is not None:
        seen.append((entries, at))
    scale, u = form.projections.scale, at.deviation / form.projections.scale
    degrees = form.rank - len(form.prior.rows)
    # tr(ΛS) = D − k − tr(HᵀΓH S)
    trace = degrees - float(form.multiplicity @ (entries * at.precision.inverse_values))
    entropy = 0.5 * (degrees + form.rank * LOG_2PI - at.precision.log_det)
    bound = at.sums.value + form.log_gaussian(u) - 0.5 * trace + entropy
    entries_hat = at.sums.entries
    by_mean = _slope(form, at)
    # twice ∂B/∂S = HᵀΓH − HᵀΓ̂H, in the coordinates u
    by_entries = (entries - entries_hat) * form.entry_scale
    gradient = max(float(np.abs(part).max(initial=0.0)) for part in (by_mean, by_entries))
    place = EntryPlace(entries, pull, entries_hat, at.sums.pull)
    return begin_at(place, bound, gradient, len(entries) + len(scale))


def _slope(form: SparseForm, at: EntryGaussian) -> Array:
    """∂B/∂m = b − Λm + Hᵀ∂⟨ψ⟩/∂m in the coordinates u."""
    u = at.deviation / form.projections.scale
    return form.linear - form.times_quadratic(u) + form.projections.along(form.projections.scale * at.sums.slope)


@dataclass(frozen=True)
class EntryCoordinates:
    """(HᵀΓH, Hᵀν) as one vector, in units of typical standard deviations."""

    form: SparseForm
    #: the last Gaussians, one of which the ascent ends at
    seen: Seen = field(default_factory=lambda: deque(maxlen=3), repr=False)

    @property
    def first(self) -> float:
        """Whole steps overshoot where sites say much beside the others; Σγs² = tr(HᵀΓH S)."""
        entries, at = self.seen[-1]
        total = float(self.form.multiplicity @ (entries * at.precision.inverse_values))
        return 1.0 if total <= SLIGHT * len(self.form.sites) else HALF

    def begin(self, parameters: SiteParameters) -> Reached[EntryPlace] | None:
        """The place of the Gaussian with these site parameters."""
        form = self.form
        return self.at(form.gram.total(parameters.gamma), form.projections.summed(parameters.nu))

    def at(self, entries: Array, pull: Array) -> Reached[EntryPlace] | None:
        """The place with HᵀΓH on the entries and Hᵀν."""
        return evaluate(self.form, entries, pull, self.seen)

    def conclude(self, place: EntryPlace) -> tuple[Gaussian, SiteParameters | None]:
        """The Gaussian of a place, and the stand-ins of the sites there."""
        at = self._gaussian_at(place)
        assert at is not None  # an ascent has been there
        return Gaussian(self.form.mean + at.deviation, SparsePrecisionCovariance(at.precision)), at.stand_ins

    def _gaussian_at(self, place: EntryPlace) -> EntryGaussian | None:
        known = [at for entries, at in self.seen if entries is place.entries]
        return known[0] if known else gaussian_at(self.form, place.entries, place.pull)

    def evaluate(self, place: EntryPlace) -> Reached[EntryPlace] | None:
        return self.at(place.entries, place.pull)

    def encode(self, place: EntryPlace) -> tuple[Array, Array]:
        return self._vector(place.entries, place.pull), self._vector(place.entries_hat, place.pull_hat)

    def _vector(self, entries: Array, pull: Array) -> Array:
        return np.concatenate([self._unit * entries, self.form.projections.scale * pull])

    @cached_property
    def _unit(self) -> Array:
        # an entry off the diagonal counts twice
        return np.sqrt(self.form.multiplicity) * self.form.entry_scale

    def decode(self, point: Array) -> Reached[EntryPlace] | None:
        entries, pull = np.split(point, [len(self._unit)])
        return self.at(entries / self._unit, pull / self.form.projections.scale)

    def move(self, place: EntryPlace, length: float) -> Reached[EntryPlace] | None:
        entries = place.entries + length * (place.entries_hat - place.entries)
        return self.at(entries, place.pull + length * (place.pull_hat - place.pull))

    def deviation(self, place: EntryPlace) -> float:
        form, at = self.form, self._gaussian_at(place)
        if at is None:
            return np.inf
        # L⁻¹ ∂B/∂m, and the change of the precision in units of marginal standard deviations
        shift = at.precision.factor.whiten(_slope(form, at) / form.projections.scale)
        spread = np.sqrt(np.maximum(at.precision.inverse_values[form.analysis.diagonal], 0.0))
        units = spread[form.analysis.indices] * np.repeat(spread, np.diff(form.analysis.indptr))
        share = (place.entries_hat - place.entries) * units
        return max(float(np.abs(part).max(initial=0.0)) for part in (shift, share))

    def newton(self, now: Reached[EntryPlace]) -> None:
        return None
