"""A fitted mixture as arrays and JSON, and back; a stream goes on from where it stood."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latlin.mixture.fitting import Trace
from latlin.mixture.fixed import Fixed, FixedParams
from latlin.mixture.gamma import Diagonal, GammaParams, Spherical
from latlin.mixture.model import WEIGHT_PRIORS, Belief, Mixture
from latlin.mixture.moments import Moments
from latlin.mixture.schedules import Adam, Constant, Exponential, RobbinsMonro
from latlin.mixture.stream import Stream
from latlin.mixture.wishart import Full, Tied, WishartParams
from latlin.numerics.archive import read_archive, write_archive

KIND = "latlin.mixture.BayesianGaussianMixture"
#: covariance → the prior of its components, and their parameters
COMPONENTS: dict[str, tuple[Any, Any]] = {
    "fixed": (Fixed, FixedParams),
    "spherical": (Spherical, GammaParams),
    "diagonal": (Diagonal, GammaParams),
    "full": (Full, WishartParams),
    "tied": (Tied, WishartParams),
}
STEPS = {rule.__name__: rule for rule in (Adam, Constant, Exponential, RobbinsMonro)}
NUMBERS = ("lower_bound_", "bound_kind_", "converged_", "n_iter_", "message_", "n_active_", "n_seen_", "n_features_in_")


class Archived:
    """`save` and `load` of the estimator."""

    def save(self: Any, path: str | os.PathLike[str]) -> None:
        """Write the fitted mixture, and the state of its stream, to an archive that loading never executes."""
        check_is_fitted(self, "posterior_")
        header = {
            "kind": KIND,
            "params": {name: _plain(name, value) for name, value in self.get_params().items()},
            "numbers": {name: _plain(name, getattr(self, name)) for name in NUMBERS if hasattr(self, name)},
            "names": list(getattr(self, "feature_names_in_", [])),
            "concentration": self.mixture_.weights.concentration,
        }
        prior = self.mixture_.components
        arrays = {f"prior_{field.name}": getattr(prior, field.name) for field in fields(prior)}
        arrays |= {f"q_{name}": value for name, value in self.posterior_.components._asdict().items()}
        arrays |= {"q_weights": self.posterior_.weights}
        if hasattr(self, "trace_"):
            arrays |= {f"trace_{name}": value for name, value in self.trace_._asdict().items()}
        if hasattr(self, "_stream"):
            arrays |= {f"share_{name}": value for name, value in self._stream.share._asdict().items()}
            header["stream"] = [self._stream.seen, self._stream.t, self._stream.bound]
        write_archive(path, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        header, arrays = read_archive(path)
        if header.get("kind") != KIND:
            raise ValueError(f"{os.fspath(path)} holds {header.get('kind')!r}, not a BayesianGaussianMixture")
        params = header["params"]
        model: Any = cls(**{name: _opened(value) for name, value in params.items()})
        kind, parameters = COMPONENTS[params["covariance"]]
        prior = kind(*(_scalar(arrays[f"prior_{field.name}"]) for field in fields(kind)))
        weights = WEIGHT_PRIORS[params["weight_prior"]](header["concentration"], params["n_components"])
        components = parameters(*(arrays[f"q_{name}"] for name in parameters._fields))
        model._store(Mixture(weights, prior), Belief(arrays["q_weights"], components), np.zeros(0))
        for name, value in header["numbers"].items():
            setattr(model, name, value)
        if header["names"]:
            model.feature_names_in_ = np.array(header["names"], dtype=object)
        if "trace_bound" in arrays:
            model.trace_ = _tuple(Trace, "trace_", arrays)
        if "stream" in header:
            model._stream = Stream(model.mixture_, _tuple(Moments, "share_", arrays), *header["stream"])
        return model


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON knows it; generators are not kept."""
    if isinstance(value, np.random.Generator | np.random.RandomState):
        return None
    if type(value).__name__ in STEPS:
        return {"step": type(value).__name__, "fields": asdict(value)}
    value = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
    if not isinstance(value, bool | int | float | str | list | tuple | None):
        raise ValueError(f"{name} must be a number, a text or an array to be saved, got {value!r}")
    return value


def _opened(value: Any) -> Any:
    return STEPS[value["step"]](**value["fields"]) if isinstance(value, dict) else value


def _scalar(value: np.ndarray) -> Any:
    """A prior's number as a float, its arrays as they are."""
    return value[()] if value.ndim == 0 else value


def _tuple(kind: Any, prefix: str, arrays: Mapping[str, Any]) -> Any:
    return kind(*(arrays[prefix + name] for name in kind._fields))
