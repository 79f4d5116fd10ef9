"""Densities as arrays and plain JSON values, and back, without running anything that a file says.

An object becomes the name of its class and its parts, down to arrays and numbers; only the classes listed here are ever
made again, by filling in their parts. Arrays keep their memory order, so that what is read back computes the very same
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np

_HERE = "latlin.densities"
#: class → module; nothing else is ever loaded
CLASSES = {
    "Gaussian": f"{_HERE}.gaussian",
    "PointMass": f"{_HERE}.point",
    "Factorised": f"{_HERE}.factorised",
    "Mixture": f"{_HERE}.mixture",
    "Table": f"{_HERE}.factorised",
    "AffineIndependent": f"{_HERE}.affine",
    "PrecisionCovariance": f"{_HERE}.precision",
    "MarginalCovariance": f"{_HERE}.marginal_covariance",
    "KernelPrecision": f"{_HERE}.kernel_precision",
    "SparsePrecision": f"{_HERE}.sparse_precision",
    "SparsePrecisionCovariance": f"{_HERE}.sparse_precision",
    "SubspaceCovariance": f"{_HERE}.subspace",
    "StructuredCovariance": f"{_HERE}.structured.covariance",
    "Diagonal": f"{_HERE}.structured.diagonal",
    "Chevron": f"{_HERE}.structured.chevron",
    "PatternedTriangle": f"{_HERE}.structured.triangular",
    "Subspace": f"{_HERE}.structured.subspace",
    "LowRank": f"{_HERE}.structured.low_rank",
    "DiagonalWhitening": f"{_HERE}.whitening",
    "CovarianceWhitening": f"{_HERE}.whitening",
    "PrecisionWhitening": f"{_HERE}.whitening",
    "Normal": f"{_HERE}.bases.normal",
    "Logistic": f"{_HERE}.bases.logistic",
    "SkewNormal": f"{_HERE}.bases.skew_normal",
    "StudentT": f"{_HERE}.bases.student_t",
    "GeneralisedNormal": f"{_HERE}.bases.generalised_normal",
    "GaussianMixture": f"{_HERE}.bases.gaussian_mixture",
    "Raw": f"{_HERE}.bases.gaussian_mixture",
    "Stacked": f"{_HERE}.bases.stacked",
    "Cholesky": "latlin.numerics.linalg",
    "SparseCholesky": "latlin.numerics.sparse_cholesky",
    "Analysis": "latlin.numerics.sparse_cholesky",
    "Pattern": "latlin.densities.structured.patterns",
}


def encode(value: Any, arrays: dict[str, np.ndarray], name: str) -> Any:
    """`value` as JSON; its arrays are put into `arrays` under names that begin with `name`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufc":
            raise ValueError(f"{name} cannot be saved: an array of {value.dtype}")
        arrays[name] = value
        return {"array": name}
    if isinstance(value, slice):
        return {"slice": [value.start, value.stop, value.step]}
    if isinstance(value, Callable):  # type: ignore[arg-type]
        return {"function": name}
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [encode(part, arrays, f"{name}.{i}") for i, part in enumerate(value)]}
    kind = type(value).__name__
    if CLASSES.get(kind) != type(value).__module__:
        raise ValueError(f"{name} cannot be saved: a {kind}")
    parts = {part: encode(inside, arrays, f"{name}.{part}") for part, inside in _parts(value).items()}
    return {"class": kind, "parts": parts}


def _parts(value: Any) -> dict[str, Any]:
    if hasattr(value, "_asdict"):
        return value._asdict()
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return dict(vars(value))


def decode(said: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """What `encode` took apart; a ValueError where the description is not one of its own."""
    if said is None or isinstance(said, bool | int | float | str):
        return said
    match said:
        case {"array": str(name)} if name in arrays:
            return arrays[name]
        case {"slice": [start, stop, step]}:
            return slice(start, stop, step)
        case {"function": str(name)}:
            return _lost(name)
        case {"tuple": list(inside)}:
            return tuple(decode(part, arrays) for part in inside)
        case {"list": list(inside)}:
            return [decode(part, arrays) for part in inside]
        case {"class": str(kind), "parts": dict(parts)} if kind in CLASSES:
            return _made(kind, {str(name): decode(part, arrays) for name, part in parts.items()})
    raise ValueError(f"not a stored density: {said!r:.80}")


def _made(kind: str, parts: dict[str, Any]) -> Any:
    """An object of a listed class with these parts and no others."""
    cls = getattr(import_module(CLASSES[kind]), kind)
    expected = getattr(cls, "_fields", None) or ([f.name for f in fields(cls)] if is_dataclass(cls) else None)
    if expected is not None and set(expected) != set(parts):
        raise ValueError(f"not a stored density: {kind} has parts {sorted(expected)}, got {sorted(parts)}")
    if hasattr(cls, "_fields"):
        return cls(**parts)
    value = object.__new__(cls)
    for name, part in parts.items():
        object.__setattr__(value, name, part)
    return value


def _lost(name: str) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise ValueError(f"{name} is a function and was not stored; fit again to use it")

    return refuse
