"""Arrays and JSON in one file: written all or nothing, sealed by digests, read without running anything.

An archive is an uncompressed zip file that `numpy.load` opens too. Its member `header` is JSON text and lists every
other member with its kind of numbers, its shape and the SHA-256 digest of its bytes; the member `digest` is that of the
header's bytes. As nothing is compressed, no member can be larger than the file itself, which is checked before anything
is read; and as digests are of the bytes that are stored, they are the same for every version of NumPy.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from importlib import import_module
from typing import IO, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from latlin.numerics.atomic import replace_file
from latlin.numerics.stored import KINDS, Decoder, Encoder, import_room, name_of

HEADER, DIGEST = "header", "digest"
#: of the layout that this module writes
FORMAT = 2
#: largest header, in bytes
LARGEST_HEADER = 256 * 2**20
_CHUNK = 2**20
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)


class _Bounded(io.BufferedReader):
    """A file of which no more than it has is ever asked for: room is made for all that a damaged directory claims."""

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(os.fstat(self.fileno()).st_size - self.tell(), 0)
        return super().read(left if size is None or size < 0 else min(size, left))


class Archive(NamedTuple):
    """What a file holds."""

    kind: str
    header: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def write_archive(
    path: str | os.PathLike[str], kind: str, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write arrays and a JSON header to `path`; the old file is replaced when the new one has been read back."""
    with replace_file(path) as fresh:
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_STORED) as file:
            members = {name: _write_member(file, name, np.asarray(array)) for name, array in arrays.items()}
            content = {"kind": kind, "format": FORMAT, "content": dict(header), "members": members}
            text = np.frombuffer(json.dumps(content).encode("utf8"), dtype=np.uint8)
            if text.nbytes > LARGEST_HEADER:
                raise ValueError(f"the names and options of this {kind} take {text.nbytes} bytes, too many to be saved")
            _write_member(file, HEADER, text)
            _write_member(file, DIGEST, np.frombuffer(hashlib.sha256(text.tobytes()).digest(), dtype=np.uint8))
        _verify(fresh, members)


def read_archive(path: str | os.PathLike[str], kind: str | None = None) -> Archive:
    """The content of an archive (of this kind); a ValueError of one sentence says what is wrong with a damaged one."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no file {os.fspath(path)}")
    with _Bounded(io.FileIO(path)) as opened, refuse_unreadable(path), zipfile.ZipFile(opened) as file:
        header = _read_header(file, os.fstat(opened.fileno()).st_size)
        if kind is not None and header["kind"] != kind:
            raise ValueError(f"it holds {header['kind']!r:.80}, not {kind!r}")
        arrays = {name: _read_member(file, name, entry) for name, entry in header["members"].items()}
        return Archive(header["kind"], header["content"], arrays)


@contextmanager
def refuse_unreadable(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever goes wrong inside is a ValueError of one sentence: a file can be damaged in any way."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{os.fspath(path)} is not a readable latlin archive: {reason:.300}") from error


def _write_member(file: zipfile.ZipFile, name: str, array: NDArray[Any]) -> dict[str, Any]:
    """Write one array in NumPy's format; what the header tells of it."""
    if array.dtype.kind not in KINDS:
        raise ValueError(f"{name} cannot be saved: an array of {array.dtype}")
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    # a reading in the order of memory, without a copy where there is one
    flat = np.ascontiguousarray(array.T if fortran else array).reshape(-1)
    entry = {"dtype": array.dtype.str, "shape": list(array.shape), "fortran": fortran}
    digest = hashlib.sha256()
    with file.open(zipfile.ZipInfo(f"{name}.npy", _FIXED_TIME), "w", force_zip64=True) as member:
        member.write(_prefix(entry))
        for part in _chunks(flat):
            member.write(part)
            digest.update(part)
    return {**entry, "sha256": digest.hexdigest()}


def _prefix(entry: Mapping[str, Any]) -> bytes:
    """The beginning of a file in NumPy's format 1.0, its length a multiple of 64."""
    text = f"{{'descr': {entry['dtype']!r}, 'fortran_order': {entry['fortran']}, 'shape': {tuple(entry['shape'])}, }}"
    padding = -(10 + len(text) + 1) % 64
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + padding + 1) + text.encode() + b" " * padding + b"\n"


def _chunks(flat: NDArray[Any]) -> Iterator[memoryview]:
    """The bytes of a flat array, a part at a time."""
    if flat.nbytes:
        raw = flat.view(np.uint8).data
        for start in range(0, len(raw), _CHUNK):
            yield raw[start : start + _CHUNK]


def _read_header(file: zipfile.ZipFile, size: int) -> dict[str, Any]:
    """The checked header: of a known format, unchanged, and true about which members there are."""
    infos = {info.filename: info for info in file.infolist()}
    if any(info.compress_type != zipfile.ZIP_STORED for info in infos.values()):
        raise ValueError("it has compressed members, which latlin does not write")
    if len(infos) != len(file.infolist()) or sum(info.file_size for info in infos.values()) > size:
        raise ValueError("its members are larger than the file")
    if f"{HEADER}.npy" not in infos or infos[f"{HEADER}.npy"].file_size > LARGEST_HEADER + 128:
        raise ValueError("it has no header")
    with file.open(f"{HEADER}.npy") as member:
        _skip_prefix(member)
        text = member.read()
    header = json.loads(text.decode("utf8"))
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")
    _check_format(header)
    with file.open(f"{DIGEST}.npy") as member:
        _skip_prefix(member)
        if member.read(33) != hashlib.sha256(text).digest():
            raise ValueError("it was damaged or changed after it was saved: its digest does not match")
    members = header["members"]
    if {f"{name}.npy" for name in [*members, HEADER, DIGEST]} != set(infos):
        raise ValueError("it was damaged or changed after it was saved: it has other members than its header says")
    return header


def _check_format(header: Mapping[str, Any]) -> None:
    version, kind = header.get("format", 1), header.get("kind")
    if not isinstance(kind, str):
        raise ValueError("its header does not say what it holds")
    if version == 1 or "members" not in header:
        raise ValueError("it was saved by latlin 0.1, whose files this version does not read: fit and save again")
    if not isinstance(version, int) or version > FORMAT:
        raise ValueError(f"it has format {version!r:.20}, and this latlin reads up to {FORMAT}: upgrade it")


def _skip_prefix(member: IO[bytes]) -> None:
    """Go on to the bytes of an array: the header says their shape, and their digest whether they are the right ones."""
    begin = member.read(10)
    if len(begin) < 10 or begin[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError("it was damaged: a member is no array")
    member.read(struct.unpack("<H", begin[8:])[0])


def _read_member(file: zipfile.ZipFile, name: str, entry: Mapping[str, Any]) -> NDArray[Any]:
    """One array, in the memory order in which it was saved, if its bytes are those that were saved."""
    dtype, shape = np.dtype(str(entry["dtype"])), tuple(entry["shape"])
    size = file.getinfo(f"{name}.npy").file_size
    if dtype.kind not in KINDS or any(not isinstance(n, int) or n < 0 for n in shape):
        raise ValueError(f"{name} is no array of numbers or texts")
    # lengths are multiplied as Python's integers, which do not overflow
    count = 1
    for n in shape:
        count *= n
    if count * dtype.itemsize > size:
        raise ValueError(f"{name} claims the shape {list(shape)}, more than the file holds")
    array = np.empty(shape[::-1] if entry["fortran"] else shape, dtype)
    digest = hashlib.sha256()
    with file.open(f"{name}.npy") as member:
        _skip_prefix(member)
        for part in _chunks(array.reshape(-1)):
            if member.readinto(part) != len(part):  # type: ignore[attr-defined]
                raise ValueError(f"{name} ends too early")
            digest.update(part)
        rest = member.read(1)
    if rest or digest.hexdigest() != entry["sha256"]:
        raise ValueError(f"it was damaged or changed after it was saved: the digest of {name} does not match")
    return array.T if entry["fortran"] else array


def _verify(path: str | os.PathLike[str], members: Mapping[str, Any]) -> None:
    """Read back what was written, a part at a time, before it takes the place of an older file."""
    with zipfile.ZipFile(path) as file:
        _read_header(file, os.path.getsize(path))
        for name, entry in members.items():
            digest = hashlib.sha256()
            with file.open(f"{name}.npy") as member:
                _skip_prefix(member)
                while part := member.read(_CHUNK):
                    digest.update(part)
            if digest.hexdigest() != entry["sha256"]:
                raise OSError(f"{os.fspath(path)} could not be read back: {name} is not what was written")


# --- `save` and `load` for everything that is fitted: a class says what of it is stored, and registers itself.
#
# A file holds the options and the fitted attributes that the class names in `_saved`, and no others are ever set from
# it.


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
        with refuse_unreadable(path):
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
    with refuse_unreadable(path):
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


#: attributes that may hold texts; other arrays of a declared shape hold numbers
LABELS = ("feature_names_in_", "classes_", "levels_")


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
    if part.name not in LABELS and value.dtype.kind not in "biufc":
        raise ValueError(f"{part.name} must hold numbers, got {value.dtype}")
