"""How Gaussian processes are stored: kernels by their parameters, a posterior by its sites, from which it follows.

Only scikit-learn's own kernels are made again; a posterior takes one factorisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sklearn.gaussian_process import kernels

from latlin.gp import state_space
from latlin.gp.approximation import Fitter, LatentFunction
from latlin.gp.conditionals import Neighbourhoods
from latlin.gp.grid import GridFitter, GridLatent
from latlin.gp.latent import Latent, Process, prior_of
from latlin.gp.search import Found
from latlin.gp.setting import Setting
from latlin.gp.state_space import StateSpaceLatent
from latlin.gp.vecchia import VecchiaLatent, model_of, selection_matrix
from latlin.inference.forms.dense import site_form
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.model import LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import Array
from latlin.numerics.stored import storable_as, storable_by_arguments
from latlin.potentials.base import Potential

#: what a posterior keeps besides its density, which follows from its sites
KEPT = (
    "log_evidence",
    "evidence_kind",
    "engine",
    "converged",
    "n_iter",
    "elapsed",
    "message",
    "power",
    "caution",
    "evidence_term",
)


def options_to_save(options: dict[str, Any]) -> dict[str, Any]:
    """Without an optimiser that is a function: only a fit needs it."""
    return options | ({"optimizer": None} if callable(options["optimizer"]) else {})


def _take_apart(process: Process) -> dict[str, Any]:
    found = process.found
    return {
        "fitter": process.fitter,
        "setting": found.setting,
        "latent": found.latent,
        "trace": found.trace,
        "search": {"converged": bool(found.converged), "n_iter": int(found.n_iter), "message": found.message},
    }


def _put_together(
    fitter: Fitter, setting: Setting, latent: LatentFunction, trace: Array, search: Mapping[str, Any]
) -> Process:
    return Process(fitter, Found(setting, latent, trace, **search))


def _take_latent_apart(latent: Latent) -> dict[str, Any]:
    posterior = latent.posterior
    return {
        "X": latent.X,
        "setting": latent.setting,
        "potential": latent.potential,
        "sites": posterior.sites,
        "trace": posterior.trace,
        "numbers": {name: getattr(posterior, name) for name in KEPT},
    }


def _put_latent_together(
    X: Array, setting: Setting, potential: Potential, sites: SiteParameters, trace: Array, numbers: Mapping[str, Any]
) -> Latent:
    prior, jitter = prior_of(setting.prior(X), setting.mean)
    posterior = _posterior(LatentLinearModel([prior, SiteFactor(None, potential)]), sites, trace, numbers)
    return Latent(X, setting, prior.cov, jitter, potential, posterior)


def _posterior(model: LatentLinearModel, sites: SiteParameters, trace: Array, numbers: Mapping[str, Any]) -> Posterior:
    """The posterior again, from its stand-ins: one factorisation."""
    form = site_form(model)
    solution = form.solve(sites)
    if solution is None:
        raise ValueError("the stored site parameters give no Gaussian")
    return Posterior(model=model, density=form.density(solution), sites=sites, trace=trace, **numbers)


def _take_vecchia_apart(latent: VecchiaLatent) -> dict[str, Any]:
    posterior = latent.posterior
    return {
        "setting": latent.setting,
        "hoods": latent.hoods,
        "rows": None if latent.factor.H is None else latent.factor.H.indices,
        "potential": latent.factor.potential,
        "sites": posterior.sites,
        "trace": posterior.trace,
        "numbers": {name: getattr(posterior, name) for name in KEPT},
    }


def _put_vecchia_together(
    setting: Setting,
    hoods: Neighbourhoods,
    rows: Any,
    potential: Potential,
    sites: SiteParameters,
    trace: Array,
    numbers: Mapping[str, Any],
) -> VecchiaLatent:
    given = hoods.conditionals(setting.kernel, setting.amplitude)
    seen = SiteFactor(selection_matrix(rows, len(hoods.inputs)), potential)
    posterior = _posterior(model_of(setting, given, seen), sites, trace, numbers)
    return VecchiaLatent(setting, hoods, given, posterior)


def _take_line_apart(latent: StateSpaceLatent) -> dict[str, Any]:
    posterior = latent.posterior
    return {
        "setting": latent.setting,
        "times": latent.times,
        "state": latent.state,
        "potential": latent.factor.potential,
        "sites": posterior.sites,
        "trace": posterior.trace,
        "numbers": {name: getattr(posterior, name) for name in KEPT},
    }


def _put_line_together(
    setting: Setting,
    times: Array,
    state: Any,
    potential: Potential,
    sites: SiteParameters,
    trace: Array,
    numbers: Mapping[str, Any],
) -> StateSpaceLatent:
    posterior = _posterior(state_space.model_of(setting, times, state, potential), sites, trace, numbers)
    return StateSpaceLatent(setting, times, state, posterior)


def _take_grid_apart(latent: GridLatent) -> dict[str, Any]:
    numbers = {name: getattr(latent.posterior, name) for name in KEPT}
    return {"setting": latent.setting, "fitter": latent.fitter, "numbers": numbers}


def _put_grid_together(setting: Setting, fitter: GridFitter, numbers: Mapping[str, Any]) -> GridLatent:
    found = fitter.fit(setting)
    return found.with_posterior(replace(found.posterior, **numbers))


storable_as(Process, _take_apart, _put_together)
storable_as(Latent, _take_latent_apart, _put_latent_together)
storable_as(VecchiaLatent, _take_vecchia_apart, _put_vecchia_together)
storable_as(StateSpaceLatent, _take_line_apart, _put_line_together)
storable_as(GridLatent, _take_grid_apart, _put_grid_together)
for _kernel in vars(kernels).values():
    if isinstance(_kernel, type) and issubclass(_kernel, kernels.Kernel) and _kernel.__module__ == kernels.__name__:
        storable_by_arguments(_kernel, lambda kernel: kernel.get_params(deep=False))
