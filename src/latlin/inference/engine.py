"""What an engine is: options, a short name, and one way to run."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from scipy import sparse

from latlin.numerics.ascent import Checkpoint

if TYPE_CHECKING:
    from latlin.inference.model import LatentLinearModel
    from latlin.inference.posterior import Posterior

#: options that say when to stop; a fit may go on from a checkpoint under other ones
STOPPING = frozenset({"tol", "max_iter", "sweeps"})


class Engine(Protocol):
    """A way to approximate; holds options only, no state between calls."""

    name: ClassVar[str]

    def run(
        self,
        model: LatentLinearModel,
        *,
        start: Posterior | None = None,
        verbose: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Posterior: ...


def checkpoint_for(path: str | os.PathLike[str] | None, model: LatentLinearModel, engine: object) -> Checkpoint | None:
    """A checkpoint that only the same model and the same engine options can resume."""
    return None if path is None else Checkpoint(path, fingerprint(model, engine))


def fingerprint(model: LatentLinearModel, engine: object) -> str:
    """A digest of every number in the model and of the engine's options, but not of when it stops."""
    options = {name: value for name, value in sorted(vars(engine).items()) if name not in STOPPING}
    digest = hashlib.sha256(f"{type(engine).__name__}{options!r}".encode())
    for factor in (*model.gaussians, *model.sites):
        _digest(digest, factor)
    return digest.hexdigest()


def _digest(digest: hashlib._Hash, value: Any) -> None:
    if isinstance(value, np.ndarray):
        digest.update(np.ascontiguousarray(value).tobytes())
    elif sparse.issparse(value):
        for part in (value.data, value.indices, value.indptr):
            digest.update(part.tobytes())
    elif hasattr(value, "__dict__") and type(value).__module__.startswith("latlin."):
        digest.update(type(value).__name__.encode("utf8"))
        for name, part in sorted(vars(value).items()):
            digest.update(name.encode("utf8"))
            _digest(digest, part)
    else:
        digest.update(repr(value).encode("utf8"))
