"""Gaussian processes on disk: options, kernels, training data and site parameters; nothing in a file is ever run.

Kernels are taken apart into class names and parameters, and only scikit-learn's own kernels are made again. A posterior
is kept as its site parameters, from which it follows in one factorisation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from sklearn.gaussian_process import kernels

from latlin import potentials
from latlin.gp.evidence import Setting
from latlin.gp.latent import Latent, prior_of
from latlin.gp.likelihoods import Likelihood
from latlin.gp.process import Process
from latlin.gp.search import Found
from latlin.inference.forms.site_form import site_form
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.infer import ENGINES
from latlin.inference.model import LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.numerics.archive import read_archive, write_archive
from latlin.numerics.arrays import Array
from latlin.potentials.base import Potential

FORMAT = 1
KERNELS: dict[str, Any] = {
    name: kind
    for name, kind in vars(kernels).items()
    if isinstance(kind, type) and issubclass(kind, kernels.Kernel) and kind.__module__ == kernels.__name__
}
FAMILIES = {name: kind for name, kind in vars(potentials).items() if isinstance(kind, type)}
NUMBERS = ("log_evidence", "evidence_kind", "engine", "converged", "n_iter", "elapsed", "message", "power")


def describe(value: Any) -> Any:
    """A value as JSON: numbers, words, arrays, tuples, mappings, kernels, potentials and engines."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, Mapping):
        return {"mapping": {str(name): describe(part) for name, part in value.items()}}
    if isinstance(value, tuple | list):
        return {"list": [describe(part) for part in value]}
    if isinstance(value, kernels.Kernel) and KERNELS.get(type(value).__name__) is type(value):
        return {"kernel": type(value).__name__, "parts": describe(value.get_params(deep=False))["mapping"]}
    if isinstance(value, Potential) and FAMILIES.get(type(value).__name__) is type(value):
        parts = {name: describe(getattr(value, name)) for name in value.parameters}
        return {"potential": type(value).__name__, "parts": parts}
    if ENGINES.get(getattr(value, "name", "")) is type(value):
        return {"engine": value.name, "parts": {f.name: describe(getattr(value, f.name)) for f in fields(value)}}
    raise ValueError(f"{value!r:.80} cannot be saved")


def rebuild(said: Any) -> Any:
    """What `describe` took apart; a ValueError where the description is not one of its own."""
    if said is None or isinstance(said, bool | int | float | str):
        return said
    match said:
        case {"array": inside}:
            return np.array(inside, dtype=float)
        case {"mapping": dict(parts)}:
            return {name: rebuild(part) for name, part in parts.items()}
        case {"list": list(inside)}:
            return tuple(rebuild(part) for part in inside)
        case {"kernel": str(name), "parts": dict(parts)} if name in KERNELS:
            return KERNELS[name](**{n: rebuild(p) for n, p in parts.items()})
        case {"potential": str(name), "parts": dict(parts)} if name in FAMILIES:
            return FAMILIES[name](**{n: rebuild(p) for n, p in parts.items()})
        case {"engine": str(name), "parts": dict(parts)} if name in ENGINES:
            return ENGINES[name](**{n: rebuild(p) for n, p in parts.items()})
    raise ValueError(f"not a stored value: {said!r:.80}")


def write(path: str | os.PathLike[str], model: Any, processes: Sequence[Process], targets: Sequence[Array]) -> None:
    """Write a fitted estimator."""
    kind = type(model)
    options = {name: _storable(name, value) for name, value in model.get_params(deep=False).items()}
    arrays: dict[str, Any] = {"X": processes[0].X}
    for i, (process, y) in enumerate(zip(processes, targets, strict=True)):
        gamma, nu = process.found.latent.sites
        arrays |= {f"y{i}": y, f"gamma{i}": gamma, f"nu{i}": nu, f"trace{i}": process.found.trace}
    header = {
        "kind": f"latlin.gp.{kind.__name__}",
        "format": FORMAT,
        "options": describe(options),
        "fits": [_described(process) for process in processes],
        "feature_names": [str(n) for n in getattr(model, "feature_names_in_", [])],
    }
    if hasattr(model, "classes_"):
        header["classes"] = {"values": model.classes_.tolist(), "dtype": model.classes_.dtype.str}
    write_archive(path, header, arrays)


def _storable(name: str, value: Any) -> Any:
    """An option, or None for what only a fit needs: a generator, a callable optimiser."""
    lost = isinstance(value, np.random.Generator | np.random.RandomState) or (name == "optimizer" and callable(value))
    return None if lost else value


def _described(process: Process) -> dict[str, Any]:
    found, setting = process.found, process.setting
    return {
        "kernel": describe(setting.kernel),
        "likelihood": describe(setting.likelihood.template),
        "free": list(setting.likelihood.free),
        "limits": [limit.tolist() for limit in setting.likelihood.limits],
        "mean": setting.mean,
        "amplitude": setting.amplitude,
        "posterior": {name: describe(getattr(found.latent.posterior, name)) for name in NUMBERS},
        "found": {"converged": bool(found.converged), "n_iter": int(found.n_iter), "message": found.message},
    }


def read(path: str | os.PathLike[str], kind: type) -> tuple[Any, list[Process], list[Array]]:
    """The unfitted estimator, and what its fit had left."""
    header, arrays = read_archive(path)
    where = os.fspath(path)
    if header.get("kind") != f"latlin.gp.{kind.__name__}" or header.get("format") != FORMAT:
        raise ValueError(f"{where} holds {header.get('kind')!r:.80}, format {header.get('format')!r:.20}")
    try:
        model = kind(**rebuild(header["options"]))
        processes = [_restored(said, arrays, i) for i, said in enumerate(header["fits"])]
        model.n_features_in_ = processes[0].X.shape[1]
        if header["feature_names"]:
            model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
        if "classes" in header:
            model.classes_ = np.array(header["classes"]["values"], dtype=np.dtype(header["classes"]["dtype"]))
        return model, processes, [arrays[f"y{i}"] for i in range(len(processes))]
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{where} is not a readable latlin model: {error}") from error


def _restored(said: dict[str, Any], arrays: Mapping[str, np.ndarray], i: int) -> Process:
    limits = tuple(np.array(limit, float) for limit in said["limits"])
    likelihood = Likelihood(rebuild(said["likelihood"]), tuple(said["free"]), limits)
    setting = Setting(rebuild(said["kernel"]), likelihood, float(said["mean"]), float(said["amplitude"]))
    X, potential = arrays["X"], likelihood.observe(arrays[f"y{i}"])
    prior, jitter = prior_of(setting.prior(X), setting.mean)
    model = LatentLinearModel([prior, SiteFactor(None, potential)])
    sites = SiteParameters(arrays[f"gamma{i}"], arrays[f"nu{i}"])
    form = site_form(model)
    solution = form.solve(sites)
    if solution is None:
        raise ValueError("the stored site parameters give no Gaussian")
    numbers = {name: rebuild(said["posterior"][name]) for name in NUMBERS}
    posterior = Posterior(
        model=model, density=form.density(solution), sites=sites, trace=arrays[f"trace{i}"], **numbers
    )
    latent = Latent(prior.cov, setting.mean, jitter, potential, posterior)
    return Process(X, Found(setting, latent, arrays[f"trace{i}"], **said["found"]))
