"""Estimators on disk: options, learnt numbers and posteriors, but not the training data.

The file is an archive of `latlin.numerics.archive`: JSON and arrays, written all or nothing. A digest of its contents
tells a damaged or edited file; only known classes, known engines and plain values are made from it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from latlin.densities.stored import decode, encode
from latlin.inference.infer import ENGINES
from latlin.inference.model import LatentLinearModel
from latlin.inference.posterior import Posterior
from latlin.inference.sites import SiteParameters
from latlin.linear._design import Design
from latlin.linear._evidence import Fit
from latlin.numerics.archive import read_archive, write_archive

Array = NDArray[np.float64]
FORMAT = 1
#: what a posterior keeps besides its density
NUMBERS = ("log_evidence", "evidence_kind", "engine", "converged", "n_iter", "elapsed", "message", "bound_error")


class StoredModel(LatentLinearModel):
    """In the place of a model whose training data were not stored: its dimension, and nothing else."""

    def __init__(self, dim: int) -> None:
        object.__setattr__(self, "dim", dim)

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("gaussians", "sites"):
            raise ValueError("this posterior was loaded from a file, which has no training data: fit again to use them")
        raise AttributeError(f"StoredModel has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"StoredModel(dim={self.dim})"


def kind_of(cls: type) -> str:
    return f"latlin.linear.{cls.__name__}"


def write(path: str | os.PathLike[str], model: Any) -> None:
    """Write a fitted estimator."""
    arrays: dict[str, np.ndarray] = {}
    fits = [_described(fit, arrays, f"fit{k}") for k, fit in enumerate(model._fits)]
    design: Design = model._design
    arrays |= {"centre": design.centre, "spread": design.spread}
    header = {
        "kind": kind_of(type(model)),
        "format": FORMAT,
        "params": {name: _plain(value, f"params.{name}", arrays) for name, value in model.get_params(False).items()},
        "intercept": design.intercept,
        "fits": fits,
        "dtype": model._dtype.name,
        "n_features": int(model.n_features_in_),
        "feature_names": [str(n) for n in model.feature_names_in_] if hasattr(model, "feature_names_in_") else None,
        "extras": {name: float(getattr(model, name)) for name in model._extras if hasattr(model, name)},
        "classes": _labels(model.classes_) if hasattr(model, "classes_") else None,
    }
    write_archive(path, {**header, "digest": _digest(header, arrays)}, arrays)


def _described(fit: Fit, arrays: dict[str, np.ndarray], name: str) -> dict[str, Any]:
    posterior = fit.posterior
    arrays[f"{name}.trace"] = np.asarray(posterior.trace, float)
    numbers = {n: encode(getattr(posterior, n), arrays, f"{name}.{n}") for n in NUMBERS}
    sites = None
    if posterior.sites is not None:
        sites = {n: encode(part, arrays, f"{name}.sites.{n}") for n, part in posterior.sites._asdict().items()}
    values = {n: encode(v, arrays, f"{name}.values.{n}") for n, v in fit.values.items()}
    density = encode(posterior.density, arrays, f"{name}.density")
    return {"posterior": numbers, "density": density, "values": values, "sites": sites, "n_fits": fit.n_fits}


def _plain(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """An option as JSON: numbers, words, arrays, and engines by name and options."""
    if type(value) in ENGINES.values():
        options = {f.name: _plain(getattr(value, f.name), f"{name}.{f.name}", arrays) for f in fields(value)}
        return {"engine": value.name, "options": options}
    if isinstance(value, np.random.Generator | np.random.RandomState):
        return None
    if callable(value) or isinstance(value, Mapping):
        raise ValueError(f"{name} cannot be saved: {value!r:.80}")
    return encode(value, arrays, name)


def _option(said: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    match said:
        case {"engine": str(name), "options": dict(options)} if name in ENGINES:
            return ENGINES[name](**{str(n): _option(v, arrays) for n, v in options.items()})
    return decode(said, arrays)


def _labels(classes: NDArray[Any]) -> dict[str, Any]:
    values = classes.tolist()
    if not all(isinstance(label, bool | int | float | str) for label in values):
        raise ValueError(f"classes_ cannot be saved: labels must be numbers or strings, got {values[:3]}")
    return {"dtype": "object" if classes.dtype == object else classes.dtype.str, "values": values}


def _digest(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name}{array.shape}{array.dtype.str}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def read(path: str | os.PathLike[str], cls: type) -> Any:
    """The estimator that `write` wrote."""
    header, arrays = read_archive(path)
    where = os.fspath(path)
    if header.get("kind") != kind_of(cls):
        raise ValueError(f"{where} holds {header.get('kind')!r:.80}, not {kind_of(cls)!r}")
    if not isinstance(header.get("format"), int) or header["format"] > FORMAT:
        raise ValueError(
            f"{where} has format {header.get('format')!r:.20}; this latlin reads up to {FORMAT}: upgrade it"
        )
    stored = header.pop("digest", None)
    if stored != _digest(header, arrays):
        raise ValueError(f"{where} was damaged or changed after it was saved: its digest does not match")
    try:
        return _restored(cls, header, arrays)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{where} is not a readable latlin model: {error}") from error


def _restored(cls: Any, header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    model = cls(**{name: _option(value, arrays) for name, value in header["params"].items()})
    model.n_features_in_ = int(header["n_features"])
    if header["feature_names"] is not None:
        model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    if header["classes"] is not None:
        model.classes_ = np.array(header["classes"]["values"], dtype=np.dtype(header["classes"]["dtype"]))
    design = Design(arrays["centre"], arrays["spread"], bool(header["intercept"]))
    fits = [_fit(said, design, arrays, f"fit{k}") for k, said in enumerate(header["fits"])]
    for name in set(cls._extras) & set(header["extras"]):
        setattr(model, name, float(header["extras"][name]))
    return model._store(design, fits, np.dtype(header["dtype"]))


def _fit(said: dict[str, Any], design: Design, arrays: Mapping[str, np.ndarray], name: str) -> Fit:
    density = decode(said["density"], arrays)
    if len(density.mean) != design.dim:
        raise ValueError(f"not a stored density: it has dimension {len(density.mean)}, the model {design.dim}")
    sites = said["sites"] and SiteParameters(**{n: decode(part, arrays) for n, part in said["sites"].items()})
    numbers = {n: decode(said["posterior"][n], arrays) for n in NUMBERS}
    posterior = Posterior(
        model=StoredModel(design.dim), density=density, sites=sites, trace=arrays[f"{name}.trace"], **numbers
    )
    return Fit(posterior, {n: decode(v, arrays) for n, v in said["values"].items()}, int(said["n_fits"]))
