"""`save` and `load` for everything that is fitted: a class says what of it is stored, and registers itself.

A file holds the options and the fitted attributes that the class names in `_saved`, and no others are ever set from it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import reduce
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from latlin.numerics.archive import Archive, read_archive, refusing, write_archive
from latlin.numerics.stored import Decoder, Encoder, import_room, name_of

#: kind of file → class
_KINDS: dict[str, type[Archived]] = {}
#: rooms that have classes with files
_ROOMS = ("additive", "factor", "gp", "inference", "linear", "mixture")
_DECLARATION = re.compile(r"([\w.]+)(\?)?(?:\[([\w*, ]*)\])?")


class _Part(NamedTuple):
    """A stored attribute: whether every fitted object has it, and an array's shape in letters or None."""

    name: str
    optional: bool
    shape: tuple[str, ...] | None


class Archived:
    """Mixed into a class whose objects are saved: `save`, `load`, and a place in `latlin.load`.

    `_saved` names the attributes: "message_" any value; "components_[K, D]" an array, whose lengths are checked against
    those of the other arrays (`*` is any); "latents_?[N, K]" one that not every fit has; "posterior_.scale[D]" the
    shape of an array inside another attribute. Options are those of `get_params`. `_after_loading` makes what follows
    from the stored attributes.
    """

    _saved: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _KINDS[name_of(cls)] = cls

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was fitted to a file, all or nothing; `latlin.load` reads it and runs nothing that is in it."""
        save_with_card(path, self, None)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        archive = read_archive(path, name_of(cls))
        with refusing(path):
            return _restore(cls, archive)

    def _options_to_save(self) -> dict[str, Any]:
        """The constructor's arguments; generators are left out, as only a fit needs them."""
        options = self.get_params(deep=False)  # type: ignore[attr-defined]
        generators = np.random.Generator | np.random.RandomState
        return {name: None if isinstance(value, generators) else value for name, value in options.items()}

    def _check_before_saving(self) -> None:
        """Raise an error where nothing was fitted."""
        missing = [p.name for p in _declared(type(self)) if not (p.optional or "." in p.name or hasattr(self, p.name))]
        if missing:
            raise ValueError(f"this {type(self).__name__} is not fitted yet: call fit before save")

    @classmethod
    def _made_from(cls, options: dict[str, Any], attributes: dict[str, Any]) -> Self:
        """The object of these options and attributes."""
        made = cls(**options)
        for name, value in attributes.items():
            setattr(made, name, value)
        made._after_loading()
        return made

    def _after_loading(self) -> None:
        """Make the attributes that follow from the stored ones, and see that they answer."""


def save_with_card(path: str | os.PathLike[str], fitted: Archived, card: Any) -> None:
    """Write what was fitted, and JSON that belongs to it."""
    fitted._check_before_saving()
    encoder = Encoder()
    options = {n: encoder.encode(v, f"options.{n}") for n, v in fitted._options_to_save().items()}
    names = [p.name for p in _declared(type(fitted)) if "." not in p.name and hasattr(fitted, p.name)]
    attributes = {name: encoder.encode(getattr(fitted, name), name) for name in names}
    header = {"options": options, "attributes": attributes, "card": card}
    write_archive(path, name_of(type(fitted)), header, encoder.arrays)


def load_with_card(path: str | os.PathLike[str]) -> tuple[Any, Any]:
    """What `save_with_card` wrote."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path must be the path of a file, got {path!r:.80}")
    archive = read_archive(path)
    cls = _class_of(archive.kind)
    if cls is None:
        raise ValueError(
            f"{os.fspath(path)} holds {archive.kind!r:.80}, which is not a saved estimator or posterior of this latlin"
        )
    with refusing(path):
        return _restore(cls, archive), archive.header["card"]


def load(path: str | os.PathLike[str]) -> Any:
    """Read an estimator, or a posterior, that its `save` wrote.

    Parameters
    ----------
    path : path
        An archive of arrays and JSON; a damaged or unknown one gives a ValueError, and no file can make this run code.

    Returns
    -------
    The fitted estimator, or the posterior.
    """
    return load_with_card(path)[0]


def _class_of(kind: Any) -> type[Archived] | None:
    """The class that a file names; those of latlin are imported when first needed."""
    if isinstance(kind, str) and kind not in _KINDS:
        package, _, rest = kind.partition(".")
        room, _, name = rest.partition(".")
        if package == "latlin" and room in _ROOMS and not hasattr(import_module(f"latlin.{room}"), name):
            import_room(room)
    return _KINDS.get(kind) if isinstance(kind, str) else None


def _restore(cls: type[Archived], archive: Archive) -> Any:
    decoder, header = Decoder(archive.arrays), archive.header
    options = {name: decoder.decode(value) for name, value in header["options"].items()}
    attributes = {name: decoder.decode(value) for name, value in header["attributes"].items()}
    return cls._made_from(options, _check_declared(cls, attributes))


def _declared(cls: type[Archived]) -> list[_Part]:
    parts = []
    for text in cls._saved:
        match = _DECLARATION.fullmatch(text)
        if match is None:
            raise TypeError(f"{cls.__name__}._saved has {text!r}, expected a name such as 'components_[K, D]'")
        name, optional, shape = match.groups()
        letters = None if shape is None else tuple(part.strip() for part in shape.split(",") if part.strip())
        parts.append(_Part(name, optional is not None, letters))
    return parts


def _check_declared(cls: type[Archived], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes in the order of the class: each is one that it names, none is missing, and the shapes agree."""
    declared = _declared(cls)
    own = [part for part in declared if "." not in part.name]
    needed = {part.name for part in own if not part.optional}
    if not needed <= set(attributes) <= {part.name for part in own}:
        raise ValueError(f"a {cls.__name__} has attributes {[p.name for p in own]}, got {sorted(attributes)}")
    lengths: dict[str, int] = {}
    for part in declared:
        first, *path = part.name.split(".")
        if part.shape is not None and first in attributes:
            _check_shape(part, reduce(getattr, path, attributes[first]), lengths)
    return {part.name: attributes[part.name] for part in own if part.name in attributes}


def _check_shape(part: _Part, value: Any, lengths: dict[str, int]) -> None:
    """An array of the declared shape; lengths of one letter are the same everywhere."""
    letters, given = part.shape or (), np.shape(value)
    agree = len(given) == len(letters) and all(
        letter == "*" or lengths.setdefault(letter, n) == n for letter, n in zip(letters, given, strict=True)
    )
    if not isinstance(value, np.ndarray) or not agree:
        raise ValueError(f"{part.name} must be an array of shape ({', '.join(letters)}), got {given}")
