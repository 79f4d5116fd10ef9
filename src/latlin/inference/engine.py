"""What an engine is: options, a short name, and one way to run."""

from __future__ import annotations

import hashlib
import os
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from latlin.inference.blocks import BlockModel
from latlin.inference.model import Model, in_memory
from latlin.numerics.ascent import Checkpoint
from latlin.potentials.base import Potential

if TYPE_CHECKING:
    from latlin.inference.posterior import Posterior

#: options that say when to stop; a fit may go on from a checkpoint under other ones
STOPPING = frozenset({"tol", "max_iter", "sweeps"})


class Engine(Protocol):
    """A way to approximate; holds options only, no state between calls."""

    name: ClassVar[str]

    def run(
        self,
        model: Model,
        *,
        start: Posterior | None = None,
        verbose: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Posterior: ...


def checkpoint_for(path: str | os.PathLike[str] | None, model: Model, engine: object) -> Checkpoint | None:
    """A checkpoint that only the same model and the same engine options can resume."""
    return None if path is None else Checkpoint(path, fingerprint(model, engine))


def fingerprint(model: Model, engine: object) -> str:
    """A digest of what the model computes and of the engine's options, but not of when it stops."""
    if isinstance(model, BlockModel):
        rows = f"{fingerprint(model.own, engine)} {type(model.reading).__name__} {model.signature}"
        return hashlib.sha256(rows.encode()).hexdigest()
    model = in_memory(model)
    digest = hashlib.sha256(type(engine).__name__.encode())
    for name, value in sorted(vars(engine).items()):
        if name not in STOPPING:
            digest.update(name.encode())
            _digest(digest, value)
    for factor in (*model.gaussians, *model.sites):
        digest.update(type(factor).__name__.encode())
        for name, value in sorted(vars(factor).items()):
            digest.update(name.encode())
            _digest(digest, value)
    return digest.hexdigest()


def _digest(digest: hashlib._Hash, value: Any) -> None:
    """Arrays by their bytes, operators by a product, potentials by their values; anything else by its repr."""
    if is_dataclass(value) and not isinstance(value, type):
        digest.update(type(value).__name__.encode())
        for field in fields(value):
            digest.update(field.name.encode())
            _digest(digest, getattr(value, field.name))
        return
    if sparse.issparse(value):
        csr = sparse.csr_array(value)
        value = np.concatenate([csr.shape, csr.indptr, csr.indices, csr.data])
    elif isinstance(value, LinearOperator):
        value = value @ np.random.default_rng(0).standard_normal((value.shape[1], 3))
    elif isinstance(value, Potential):
        digest.update(type(value).__name__.encode())
        value = value.log_density(np.linspace(-3.0, 3.0, 7)[:, None] * np.ones(value.size or 1))
    if isinstance(value, np.ndarray):
        digest.update(f"{value.shape}{value.dtype}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    else:
        digest.update(repr(value).encode())
