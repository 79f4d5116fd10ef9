"""What an engine is: options, a short name, and one way to run."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from inspect import getclosurevars
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from latlin.inference.blocks import BlockModel
from latlin.inference.forms.prior import needs_sparse
from latlin.inference.forms.site_family import SiteForm
from latlin.inference.forms.sparse_blocks import SparseBlockForm, sparse_block_form
from latlin.inference.forms.sums import SumForm
from latlin.inference.model import LatentLinearModel, Model, require_in_memory
from latlin.numerics.ascent import Checkpoint
from latlin.numerics.stored import name_of
from latlin.potentials.base import Potential

if TYPE_CHECKING:
    from latlin.inference.posterior import Posterior


from latlin.inference.forms.dense import block_form, site_form

#: options that say when to stop; a fit may go on from a checkpoint under other ones
STOPPING = frozenset({"tol", "max_iter", "sweeps", "double_loop"})
#: what a message adds where several optima may be
LOCAL = "; the sites are not log-concave, so this optimum may be local"


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
    model = require_in_memory(model)
    digest = hashlib.sha256(name_of(type(engine)).encode())
    for name, value in sorted(vars(engine).items()):
        if name not in STOPPING:
            digest.update(name.encode())
            _digest(digest, value)
    digest.update(f"normalise_prior={model.normalise_prior}".encode())
    for factor in (*model.gaussians, *model.sites, *model.constraints):
        digest.update(type(factor).__name__.encode())
        for name, value in sorted(vars(factor).items()):
            digest.update(name.encode())
            _digest(digest, value)
    return digest.hexdigest()


def _digest(digest: hashlib._Hash, value: Any) -> None:
    """Arrays by their bytes, operators by a product, potentials by all they hold and by values, functions by code."""
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
        digest.update(type(value).__qualname__.encode())
        for name, part in sorted(value.__getstate__().items()):
            digest.update(name.encode())
            _digest(digest, part)
        for values in _values(value):
            _digest(digest, values)
        return
    if isinstance(value, np.ndarray) and value.dtype != object:
        digest.update(f"{value.shape}{value.dtype.str}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, FunctionType):
        _digest_function(digest, value)
    elif isinstance(value, tuple | list):
        digest.update(f"{len(value)} parts".encode())
        for part in value:
            _digest(digest, part)
    elif isinstance(value, partial):
        _digest(digest, (value.func, value.args, sorted(value.keywords.items())))
    elif callable(value):  # what it computes is in the values of its potential
        digest.update(str(getattr(value, "__name__", type(value).__qualname__)).encode())
    else:
        digest.update(repr(value).encode())


def _digest_function(digest: hashlib._Hash, function: FunctionType) -> None:
    """Code, constants, defaults and the values that a function keeps from where it was made."""
    _digest_code(digest, function.__code__)
    kept = getclosurevars(function).nonlocals
    _digest(digest, [function.__defaults__, *(function.__kwdefaults__ or {}).items(), *kept.items()])


def _digest_code(digest: hashlib._Hash, code: CodeType) -> None:
    digest.update(code.co_code + repr((code.co_names, code.co_varnames)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _digest_code(digest, constant)
        else:
            digest.update(repr(constant).encode())


def _values(potential: Potential) -> Iterator[np.ndarray]:
    """log φ where the family bends, and on a logarithmic scale from 10⁻³ to 10⁶ on both sides of zero."""
    ladder = np.concatenate([[0.0], 10.0 ** np.arange(-3.0, 6.5, 0.5)])
    places: list[Any] = [sign * size for sign in (1.0, -1.0) for size in ladder]
    for centre, width in potential.regions():
        places += [centre + k * width for k in (-8.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 8.0)]
    with np.errstate(all="ignore"):
        yield from (_value(potential, np.broadcast_to(place, potential.size or 1)) for place in places)


def _value(potential: Potential, x: np.ndarray) -> np.ndarray:
    try:
        return potential.log_density(x)
    except ValueError:  # a function of the user's may have no value there
        return np.full(x.shape, np.nan)


def refuse_extra_variance(model: LatentLinearModel, engine: str) -> None:
    """A sentence for sites with an extra variance, where an engine integrates or bounds the sites themselves."""
    if any(factor.extra_variance is not None for factor in model.sites):
        raise ValueError(
            f"engine {engine!r} cannot be used for a SiteFactor with extra_variance; "
            "use 'gkl', 'exact', 'laplace' or 'map'"
        )


# --- Which coordinates a full Gaussian is fitted in: what engines ask of a model.


def form_of(model: Model) -> SiteForm | SumForm | SparseBlockForm:
    """The coordinates in which a full Gaussian is fitted to a model, wherever its rows are."""
    if isinstance(model, BlockModel):
        return sparse_block_form(model) if needs_sparse(model.own) else block_form(model)
    return site_form(model)
