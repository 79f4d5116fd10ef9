"""Estimators on disk: options, learnt numbers and posteriors, but not the training data.

The file is an archive of `latlin.numerics.archive`: JSON and arrays, written all or nothing. A digest of its contents
tells a damaged or edited file; only known classes, known engines and plain values are made from it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latlin.densities.stored import decode, encode
from latlin.inference.infer import ENGINES
from latlin.inference.posterior import Posterior
from latlin.inference.stored_posterior import describe, parts_of
from latlin.linear._design import Design
from latlin.linear._evidence import Fit
from latlin.numerics.archive import read_sealed, write_sealed

FORMAT = 1


def kind_of(cls: type) -> str:
    return f"latlin.linear.{cls.__name__}"


def write(path: str | os.PathLike[str], model: Any) -> None:
    """Write a fitted estimator."""
    arrays: dict[str, np.ndarray] = {}
    fits = [_described(fit, arrays, f"fit{k}") for k, fit in enumerate(model._fits)]
    design: Design = model._design
    arrays |= {"centre": design.centre, "spread": design.spread}
    header = {
        "params": {name: _plain(value, f"params.{name}", arrays) for name, value in model.get_params(False).items()},
        "intercept": design.intercept,
        "fits": fits,
        "dtype": model._dtype.name,
        "n_features": int(model.n_features_in_),
        "feature_names": [str(n) for n in model.feature_names_in_] if hasattr(model, "feature_names_in_") else None,
        "extras": {name: float(getattr(model, name)) for name in model._extras if hasattr(model, name)},
        "classes": _labels(model.classes_) if hasattr(model, "classes_") else None,
    }
    write_sealed(path, kind_of(type(model)), FORMAT, header, arrays)


def _described(fit: Fit, arrays: dict[str, np.ndarray], name: str) -> dict[str, Any]:
    values = {n: encode(v, arrays, f"{name}.values.{n}") for n, v in fit.values.items()}
    return {**describe(fit.posterior, arrays, name), "values": values, "n_fits": fit.n_fits}


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


def read(path: str | os.PathLike[str], cls: type) -> Any:
    """The estimator that `write` wrote."""
    header, arrays = read_sealed(path, kind_of(cls), FORMAT)
    try:
        return _restored(cls, header, arrays)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{os.fspath(path)} is not a readable latlin model: {error}") from error


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
    posterior = Posterior(**parts_of(said, design.dim, arrays, name))
    return Fit(posterior, {n: decode(v, arrays) for n, v in said["values"].items()}, int(said["n_fits"]))
