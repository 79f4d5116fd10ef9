"""Values as JSON and arrays, and back, without running anything that a file says.

An object becomes the name of its class and its parts, down to arrays and numbers. Only classes that were registered
with `storable` are ever made again, from the parts that they have and from no others. Arrays keep their memory order,
so that what is read back computes the very same numbers.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib import import_module
from types import UnionType
from typing import Any, NamedTuple, TypeVar, get_origin

import numpy as np
from numpy.typing import NDArray

#: of arrays in files: numbers, texts; never objects
KINDS = "biufcSU"
#: kinds of parts as annotations write them
ARRAYS = ("Array", "NDArray", "Labels")
PLAIN: dict[str, Any] = {
    "None": type(None),
    "bool": bool,
    "int": int,
    "float": int | float,
    "str": str,
    "dict": dict,
    "list": list,
    "tuple": tuple,
}
Class = TypeVar("Class", bound=type)
#: rooms whose classes a file may name before they were imported
ROOMS = (
    "additive",
    "datasets",
    "densities",
    "diagnostics",
    "factor",
    "gp",
    "hyper",
    "inference",
    "linear",
    "mixture",
    "numerics",
    "potentials",
    "priors",
)


class Storing(NamedTuple):
    """How objects of a class are taken apart and put together."""

    cls: type
    take_apart: Callable[[Any], dict[str, Any]]
    put_together: Callable[[dict[str, Any]], Any]


REGISTRY: dict[str, Storing] = {}


def name_of(cls: type) -> str:
    """The name of a class in files: of latlin's own the room and the class, so that files survive moved modules."""
    module = cls.__module__
    parts = module.split(".")
    return f"{'.'.join(parts[:2]) if parts[0] == 'latlin' else module}.{cls.__qualname__}"


def storable(cls: Class) -> Class:
    """Objects of this class are stored by their parts and filled with them again, as they were.

    For NamedTuples, dataclasses, and classes whose attributes are all there is. A class whose parts go to compiled
    loops or to libraries has a method `check_stored`, which raises a ValueError where they do not fit together.
    """
    return _register(Storing(cls, _parts, lambda parts: _filled(cls, parts)))


def _field_names(value: Any) -> list[str]:
    return [field.name for field in fields(value)]


def storable_by_arguments(cls: Class, names: Callable[[Any], Iterable[str]] = _field_names) -> Class:
    """Objects of this class are stored by the arguments of their constructor, which are attributes too."""
    return _register(
        Storing(cls, lambda value: {name: getattr(value, name) for name in names(value)}, lambda parts: cls(**parts))
    )


def storable_as(cls: Class, take_apart: Callable[[Any], dict[str, Any]], put_together: Callable[..., Any]) -> Class:
    """Objects of this class are stored as these parts, and made again by a function of them."""
    return _register(Storing(cls, take_apart, lambda parts: put_together(**parts)))


def _register(storing: Storing) -> Any:
    """Note how a class is stored; two classes of one name in one room could not be told apart in a file."""
    known = REGISTRY.setdefault(name_of(storing.cls), storing)
    if known.cls.__module__ != storing.cls.__module__:
        raise TypeError(f"{storing.cls.__module__} and {known.cls.__module__} store a {storing.cls.__name__} each")
    REGISTRY[name_of(storing.cls)] = storing
    return storing.cls


def is_storable(value: Any) -> bool:
    """Whether objects of this class can be stored."""
    kind = name_of(type(value))
    return kind in REGISTRY and REGISTRY[kind].cls is type(value)


class Encoder:
    """Turns values into JSON and collects their arrays; one array that occurs twice is stored once."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self._names: dict[int, str] = {}

    def encode(self, value: Any, name: str) -> Any:
        """`value` as JSON; `name` says in errors, and in the file, where it stood."""
        if value is None or isinstance(value, bool | int | float | str):
            return value.item() if isinstance(value, np.generic) else value
        if isinstance(value, np.generic):
            return self.encode(value.item(), name)
        if isinstance(value, np.ndarray):
            return self._encode_array(value, name)
        if isinstance(value, np.dtype):
            return {"dtype": value.str}
        if isinstance(value, slice):
            return {"slice": [value.start, value.stop, value.step]}
        if isinstance(value, Mapping):
            items = [[self.encode(k, name), self.encode(v, f"{name}.{k}")] for k, v in value.items()]
            return {"mapping": items}
        if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [self.encode(part, f"{name}.{i}") for i, part in enumerate(value)]}
        return self._encode_object(value, name)

    def _encode_array(self, value: NDArray[Any], name: str) -> Any:
        if value.dtype == object:
            return {"objects": [self.encode(part, name) for part in value.ravel().tolist()], "shape": value.shape}
        if value.dtype.kind not in KINDS:
            raise ValueError(f"{name} cannot be saved: an array of {value.dtype}")
        stored = self._names.setdefault(id(value), name)
        self.arrays[stored] = value
        return {"array": stored}

    def _encode_object(self, value: Any, name: str) -> Any:
        kind = name_of(type(value))
        if kind not in REGISTRY or REGISTRY[kind].cls is not type(value):
            raise ValueError(f"{name} cannot be saved: {value!r:.80}")
        parts = REGISTRY[kind].take_apart(value)
        return {"class": kind, "parts": {part: self.encode(v, f"{name}.{part}") for part, v in parts.items()}}


class Decoder:
    """Makes values again from JSON and arrays; a ValueError where the JSON is not of `Encoder`."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._arrays = arrays

    def decode(self, stored: Any) -> Any:
        """What `Encoder.encode` took apart."""
        if stored is None or isinstance(stored, bool | int | float | str):
            return stored
        match stored:
            case {"array": str(name)} if name in self._arrays:
                return self._arrays[name]
            case {"objects": list(parts), "shape": list(shape)}:
                return _object_array([self.decode(part) for part in parts], shape)
            case {"dtype": str(name)}:
                return np.dtype(name)
            case {"slice": [start, stop, step]}:
                return slice(start, stop, step)
            case {"mapping": list(items)}:
                return {self.decode(key): self.decode(value) for key, value in items}
            case {"tuple": list(parts)}:
                return tuple(self.decode(part) for part in parts)
            case {"list": list(parts)}:
                return [self.decode(part) for part in parts]
            case {"class": str(kind), "parts": dict(parts)}:
                return _find(kind).put_together({name: self.decode(part) for name, part in parts.items()})
        raise ValueError(f"not a stored value: {stored!r:.80}")


def _object_array(parts: list[Any], shape: list[int]) -> NDArray[Any]:
    array = np.empty(len(parts), dtype=object)
    array[:] = parts
    return array.reshape(shape)


def _find(kind: str) -> Storing:
    """How objects of a class that a file names are made; the rooms of latlin are searched for it, nothing else."""
    if kind not in REGISTRY:
        package, _, rest = kind.partition(".")
        room = rest.partition(".")[0]
        if package == "latlin" and room in ROOMS:
            import_room(room)
    if kind not in REGISTRY:
        raise ValueError(f"not a stored value: it names {kind!r:.80}, which latlin does not store")
    return REGISTRY[kind]


def import_room(room: str) -> None:
    """Import every module of a room, so that its classes are registered."""
    package = import_module(f"latlin.{room}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        import_module(module.name)


def _parts(value: Any) -> dict[str, Any]:
    if hasattr(value, "_asdict"):
        return value._asdict()
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return dict(vars(value))


def _filled(cls: Any, parts: dict[str, Any]) -> Any:
    """An object with these parts, defaults for parts that are new since, and no others."""
    expected = getattr(cls, "_fields", None) or ([f.name for f in fields(cls)] if is_dataclass(cls) else None)
    if expected is not None:
        parts = {**_new_parts(cls, set(expected) - set(parts)), **parts}
    if expected is not None and set(expected) != set(parts):
        raise ValueError(f"not a stored value: {cls.__name__} has parts {sorted(expected)}, got {sorted(parts)}")
    _check_names(cls, parts)
    _check_parts(cls, parts)
    if hasattr(cls, "_fields"):
        value = cls(**parts)
    else:
        value = object.__new__(cls)
        for name, part in parts.items():
            object.__setattr__(value, name, part)
    if hasattr(cls, "check_stored"):
        value.check_stored()
    return value


def _new_parts(cls: Any, missing: set[str]) -> dict[str, Any]:
    """Parts with a default that a file does not have: the class has got them since it was written."""
    if hasattr(cls, "_fields"):
        return {name: cls._field_defaults[name] for name in missing & set(cls._field_defaults)}
    return {f.name: f.default for f in fields(cls) if f.name in missing and f.default is not MISSING}


def _check_names(cls: type, parts: Iterable[str]) -> None:
    """No name from a file takes the place of something that the class does."""
    for name in parts:
        own = getattr(cls, name, None)
        if name.startswith("__") or isinstance(own, property) or callable(own):
            raise ValueError(f"not a stored value: {name!r:.80} is no part of {cls.__name__}")


def _check_parts(cls: type, parts: Mapping[str, Any]) -> None:
    """Parts are of the kinds that the class declares for them, where these are numbers, texts, arrays or classes."""
    seen: set[str] = set()
    for base in cls.__mro__:
        names, own = vars(sys.modules[base.__module__]), vars(base).get("__annotations__", {})
        for name in (set(own) & set(parts)) - seen:
            kind = own[name]
            text = str(getattr(kind, "__forward_arg__", kind))  # of a NamedTuple, of a dataclass
            if not any(_is_a(parts[name], one, names) for one in _alternatives(text)):
                raise ValueError(f"not a stored value: {name} of {cls.__name__} must be of the kind {text}")
        seen |= set(own)


@cache
def _alternatives(text: str) -> tuple[str, ...]:
    """The kinds that `a | b[c | d]` joins."""
    pieces, depth = [""], 0
    for mark in text:
        depth += (mark == "[") - (mark == "]")
        if mark == "|" and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += mark
    return tuple(piece.strip() for piece in pieces)


def _is_a(part: Any, text: str, names: Mapping[str, Any]) -> bool:
    """Whether a value is of a kind that is written so; kinds that cannot be told apart here are taken as they are."""
    kind, _, inside = text.removesuffix("]").partition("[")
    if kind in ARRAYS:
        kinds = "biu" if inside.startswith("np.int") or kind == "Labels" else "biufc"
        return isinstance(part, np.ndarray) and part.dtype.kind in kinds
    if kind == "tuple" and inside.endswith(", ..."):
        return isinstance(part, tuple) and all(_is_a(one, inside.removesuffix(", ..."), names) for one in part)
    if kind in PLAIN:
        return isinstance(part, PLAIN[kind]) and (kind == "bool" or not isinstance(part, bool))
    found = names.get(kind)
    if get_origin(found) is np.ndarray:
        return isinstance(part, np.ndarray)
    if isinstance(found, UnionType) and all(isinstance(one, type) for one in found.__args__):
        return isinstance(part, found)
    if found is Any or not isinstance(found, type):
        return True
    return _has_members(part, found) if getattr(found, "_is_protocol", False) else isinstance(part, found)


def _has_members(part: Any, protocol: type) -> bool:
    """Whether a value has what a protocol asks for; nothing is evaluated."""
    bases = [base for base in protocol.__mro__ if getattr(base, "_is_protocol", False)]
    names = {name for base in bases for name in (*vars(base), *vars(base).get("__annotations__", {}))}
    own = vars(part) if hasattr(part, "__dict__") else {}
    return all(name.startswith("_") or hasattr(type(part), name) or name in own for name in names)


# --- What `check_stored` may ask: compiled loops follow places without looking, and one out of place reads anywhere.


def are_places(values: NDArray[Any], count: int, least: int = 0) -> bool:
    """Whether these are integers from `least` to count − 1.

    >>> are_places(np.array([0, 2]), 3), are_places(np.array([0, 3]), 3), are_places(np.array([0.0]), 3)
    (True, False, False)
    """
    return values.dtype.kind in "iu" and not bool(np.any((values < least) | (values >= count)))


def are_offsets(values: NDArray[Any], count: int, end: int) -> bool:
    """Whether these are where `count` parts of something of length `end` begin, and its end."""
    return len(values) == count + 1 and values[0] == 0 and values[-1] == end and bool(np.all(np.diff(values) >= 0))


def rise_within(part: NDArray[Any], values: NDArray[Any], n: int) -> bool:
    """Whether values are from 0 to n − 1 and rise strictly within each part."""
    return are_places(values, n) and bool(np.all((np.diff(values) > 0) | (np.diff(part) > 0)))


def check_made_again(value: Any, made: Any) -> None:
    """Refuse an object from a file whose parts are not those that its constructor makes."""
    parts, right = vars(value), vars(made)
    if set(parts) != set(right) or not all(_are_alike(parts[name], part) for name, part in right.items()):
        raise ValueError(f"not a stored value: the parts of a {type(value).__name__} do not fit together")


def _are_alike(part: Any, right: Any) -> bool:
    kinds = np.asarray(part).dtype.kind, np.asarray(right).dtype.kind
    return part is right or (kinds[0] == kinds[1] and np.array_equal(part, right))
