"""Posteriors on disk: the density, the evidence and how it came about, but not the model, which holds the data.

Only densities that `latlin.densities.stored` lists are ever made again, and nothing that a file says is run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from latlin.densities.stored import decode, encode
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.model import LatentLinearModel
from latlin.numerics.archive import read_sealed, write_sealed

KIND, FORMAT = "latlin.inference.Posterior", 1
#: what a posterior keeps besides its density, its sites and its trace
NUMBERS = (
    "log_evidence",
    "evidence_kind",
    "engine",
    "converged",
    "n_iter",
    "elapsed",
    "message",
    "bound_error",
    "power",
    "caution",
)
#: those that files of earlier versions lack
LATER = ("power", "caution")


class StoredModel(LatentLinearModel):
    """In the place of a model whose training data were not stored: its dimension, and nothing else."""

    def __init__(self, dim: int) -> None:
        object.__setattr__(self, "dim", dim)

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("gaussians", "sites"):
            raise ValueError(
                "this posterior was loaded from a file, which has no training data: fit again to use them, or give it "
                "its model, dataclasses.replace(posterior, model=model)"
            )
        raise AttributeError(f"StoredModel has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"StoredModel(dim={self.dim})"


def describe(posterior: Any, arrays: dict[str, np.ndarray], name: str) -> dict[str, Any]:
    """A posterior as JSON; its arrays are put into `arrays` under names that begin with `name`."""
    arrays[f"{name}.trace"] = np.asarray(posterior.trace, float)
    sites = None
    if posterior.sites is not None:
        sites = {n: encode(part, arrays, f"{name}.sites.{n}") for n, part in posterior.sites._asdict().items()}
    return {
        "posterior": {n: encode(getattr(posterior, n), arrays, f"{name}.{n}") for n in NUMBERS},
        "density": encode(posterior.density, arrays, f"{name}.density"),
        "sites": sites,
    }


def parts_of(said: Mapping[str, Any], dim: int, arrays: Mapping[str, np.ndarray], name: str) -> dict[str, Any]:
    """The parts of the posterior over `dim` coordinates that `describe` took apart, a `StoredModel` among them."""
    density = decode(said["density"], arrays)
    if len(density.mean) != dim:
        raise ValueError(f"not a stored density: it has dimension {len(density.mean)}, the model {dim}")
    sites = said["sites"] and SiteParameters(**{n: decode(part, arrays) for n, part in said["sites"].items()})
    numbers = {n: decode(said["posterior"][n], arrays) for n in NUMBERS if n not in LATER or n in said["posterior"]}
    return {
        "model": StoredModel(dim),
        "density": density,
        "sites": sites,
        "trace": arrays[f"{name}.trace"],
        **numbers,
    }


def write(path: str | os.PathLike[str], posterior: Any) -> None:
    """Write a posterior, all or nothing."""
    arrays: dict[str, np.ndarray] = {}
    said = describe(posterior, arrays, "posterior")
    write_sealed(path, KIND, FORMAT, {"dim": int(posterior.model.dim), **said}, arrays)


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The parts of the posterior that `write` wrote."""
    header, arrays = read_sealed(path, KIND, FORMAT)
    try:
        return parts_of(header, int(header["dim"]), arrays, "posterior")
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{os.fspath(path)} is not a readable posterior: {error}") from error
