"""Which way a full Gaussian KL fit takes: stand-ins for every site, or sums over the sites alone.

Both climb the same bound. With stand-ins a step mixes 2N numbers, and hard fits are finished by second-order steps;
with sums it mixes D²/2, nothing is kept a row, and the steps are those on blocks of rows. Where there are many rows for
each dimension the sums need less time and memory: on two cores, from about 40 rows a dimension on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from latlin.inference.forms.held import HeldForm, held_form
from latlin.inference.forms.sparse import uses_sparse
from latlin.inference.gaussian_kl.full_fit import NOWHERE, Asked, FullFit, Way
from latlin.inference.gaussian_kl.sites import BySites, warned
from latlin.inference.gaussian_kl.sum_starts import first_state
from latlin.inference.gaussian_kl.sums import SumState, maximise_bound_by_sums
from latlin.inference.model import LatentLinearModel
from latlin.numerics.ascent import Ascent
from latlin.numerics.linalg import cholesky

ALGORITHMS = ("auto", "sites", "sums")
#: rows a dimension from which on sums are faster
TALL = 40


@dataclass(frozen=True)
class BySums:
    """The ascent on (P, m) by sums over the sites."""

    form: HeldForm

    def fit(self, asked: Asked) -> FullFit:
        ascent = self.climb(asked)
        if ascent is None:
            raise ValueError(NOWHERE)
        return self.told(warned(ascent))

    def climb(self, asked: Asked) -> Ascent[SumState] | None:
        """The ascent, or None where no start has a finite bound."""
        model, start, rules, verbose, checkpoint = asked
        first = first_state(self.form, all(factor.potential.smooth for factor in model.sites), start)
        if first is None:
            return None
        return maximise_bound_by_sums(self.form, first, rules, verbose, checkpoint, warn=False)

    def told(self, ascent: Ascent[SumState]) -> FullFit:
        state, chol = ascent.state, cholesky(ascent.state.precision)
        sites = self.form.stand_ins(state.m, chol.factor)
        return FullFit(ascent, self.form.gaussian(state.m, chol), state.bound, sites)


@dataclass(frozen=True)
class BySumsFirst(BySums):
    """The ascent by sums; from the beginning by sites where that crawls or ends before the optimum."""

    def fit(self, asked: Asked) -> FullFit:
        ascent = self.climb(asked.quickly)
        if ascent is not None and (ascent.converged or ascent.n_iter == asked.rules.max_iter):
            return self.told(warned(ascent))
        found = BySites().fit(asked._replace(checkpoint=None))
        steps = 0 if ascent is None else ascent.n_iter
        message = f"{found.ascent.message}; {steps} steps by sums had not"
        return found._replace(ascent=replace(found.ascent, message=message))


def way_of(algorithm: str, model: LatentLinearModel) -> Way:
    """The way that an algorithm's name means for a model."""
    if algorithm != "sums" and uses_sparse(model):
        return BySites()
    if algorithm == "sites" or (algorithm == "auto" and not _is_tall(model)):
        return BySites()
    form = held_form(model)
    if form is not None:
        return BySumsFirst(form) if algorithm == "auto" else BySums(form)
    if algorithm == "auto":
        return BySites()
    raise ValueError(
        "algorithm='sums' needs a factor on w itself, sites on rows H, and no GaussianFactor with an H, "
        f"got {model!r}; use algorithm='sites'"
    )


def _is_tall(model: LatentLinearModel) -> bool:
    """Many rows for each dimension, and log-concave sites, which need but one start."""
    rows = sum(model.site_count(factor) for factor in model.sites if factor.H is not None)
    return rows >= TALL * model.dim and all(factor.potential.log_concave for factor in model.sites)
