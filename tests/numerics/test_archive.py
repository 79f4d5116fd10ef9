"""Archives: atomic writes, reading that runs nothing and takes no byte that was not written."""

import os
import pickle
import tracemalloc
import zipfile
from contextlib import suppress

import numpy as np
import pytest

from latlin.numerics import archive
from latlin.numerics.archive import read_archive, write_archive


def test_round_trip(tmp_path):
    arrays = {
        "x": np.arange(3.0),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "strided": np.arange(12.0).reshape(3, 4)[:, ::2],
        "texts": np.array(["a", "γδ"]),
        "nothing": np.zeros((0, 3), dtype=np.float32),
        "number": np.array(2.5),
        "flags": np.array([True, False]),
        "big": np.arange(3, dtype=">i4"),
    }
    write_archive(tmp_path / "a.npz", "k", {"name": "γ"}, arrays)
    kind, header, again = read_archive(tmp_path / "a.npz", "k")
    assert (kind, header) == ("k", {"name": "γ"})
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array)
        assert again[name].dtype == array.dtype.newbyteorder("<")
        assert again[name].flags.writeable
    assert again["fortran"].flags.f_contiguous
    with np.load(tmp_path / "a.npz") as plain:
        np.testing.assert_array_equal(plain["fortran"], arrays["fortran"])
        np.testing.assert_array_equal(plain["number"], 2.5)


def test_the_same_content_is_the_same_file(tmp_path):
    for name in "ab":
        write_archive(tmp_path / name, "k", {"n": 1}, {"x": np.ones(2)})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("when", ["write", "read back"])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, when):
    path = tmp_path / "a.npz"
    write_archive(path, "k", {"n": 1}, {"x": np.ones(2)})

    def full_disk(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(archive, "_write_member" if when == "write" else "_skip_prefix", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_archive(path, "k", {"n": 2}, {"x": np.zeros(2)})
    monkeypatch.undo()
    assert read_archive(path).header == {"n": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


def test_what_cannot_be_read_back_is_not_kept(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    write_archive(path, "k", {}, {"x": np.ones(2)})
    honest = archive._chunks
    monkeypatch.setattr(archive, "_chunks", lambda flat: honest(flat[:1]))  # half of it is written
    monkeypatch.setattr(archive.hashlib, "sha256", _Forgetful)
    with pytest.raises((OSError, ValueError)):
        write_archive(path, "k", {}, {"x": np.zeros(2)})
    monkeypatch.undo()
    np.testing.assert_array_equal(read_archive(path).arrays["x"], 1.0)


class _Forgetful:
    """A digest that is another one each time."""

    def __init__(self, *_):
        self._bytes = os.urandom(32)

    def update(self, _):
        pass

    def digest(self):
        return self._bytes

    def hexdigest(self):
        return self._bytes.hex()


@pytest.mark.parametrize("damage", ["truncated", "text", "no header", "compressed", "empty"])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "a.npz"
    write_archive(path, "k", {"n": 1}, {"x": np.arange(100.0)})
    content = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "text":
        path.write_text("x,y\n1,2\n")
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "compressed":
        np.savez_compressed(path, header=np.zeros(10**6, np.uint8))
    else:
        np.savez(path, x=np.ones(2))
    with pytest.raises(ValueError, match=r"a\.npz is not a readable latlin archive"):
        read_archive(path)


def rewritten(path, change):
    """The file again, its members changed as bytes."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)


@pytest.mark.parametrize(
    "change",
    [
        lambda members: members.update({"x.npy": members["x.npy"][:-8] + bytes(8)}),
        lambda members: members.update({"x.npy": members["x.npy"][:-8]}),
        lambda members: members.update({"x.npy": members["x.npy"] + bytes(8)}),
        lambda members: members.update({"y.npy": members["x.npy"]}),
        lambda members: members.pop("x.npy"),
        lambda members: members.pop("digest.npy"),
        lambda members: members.update({"header.npy": members["header.npy"].replace(b'"n": 1', b'"n": 2')}),
    ],
)
def test_every_member_is_sealed(tmp_path, change):
    path = tmp_path / "a.npz"
    write_archive(path, "k", {"n": 1}, {"x": np.arange(1.0, 100.0)})
    rewritten(path, change)
    with pytest.raises(ValueError, match=r"a\.npz is not a readable latlin archive"):
        read_archive(path)


def test_a_claim_of_terabytes_costs_nothing(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    honest = archive._write_member

    def claim(file, name, array):
        return honest(file, name, array) | ({"shape": [2**40]} if name == "x" else {})

    monkeypatch.setattr(archive, "_write_member", claim)
    monkeypatch.setattr(archive, "_verify", lambda *_: None)
    write_archive(path, "k", {}, {"x": np.ones(3)})
    with pytest.raises(ValueError, match="more than the file holds"):
        read_archive(path)


def test_a_pickle_inside_is_not_run(tmp_path):
    ran = []

    class Trap:
        def __reduce__(self):
            return (ran.append, (1,))

    path = tmp_path / "a.npz"
    np.savez(path, header=np.array([Trap()], dtype=object))
    with pytest.raises(ValueError, match="not a readable"):
        read_archive(path)
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match="not a readable"):
        read_archive(path)
    assert ran == []


def test_files_of_the_first_version_get_a_sentence(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, header=np.frombuffer(b'{"kind": "latlin.linear.SparseRegression", "format": 1}', np.uint8))
    with pytest.raises(ValueError, match=r"saved by latlin 0\.1.*fit and save again"):
        read_archive(path)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        read_archive(tmp_path / "nothing.npz")


def test_another_kind_is_refused(tmp_path):
    write_archive(tmp_path / "a.npz", "k", {}, {})
    with pytest.raises(ValueError, match="holds 'k', not 'other'"):
        read_archive(tmp_path / "a.npz", "other")


def test_a_directory_that_claims_much_takes_no_memory(tmp_path):
    """Every byte of the directory at the end of the file, where sizes and places are, made large."""
    path = tmp_path / "a.npz"
    write_archive(path, "k", {"n": "long" * 5000}, {"x": np.ones(2)})
    content, largest = path.read_bytes(), 0
    for place in range(content.index(b"PK\x01\x02"), len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x40]) + content[place + 1 :])
        tracemalloc.start()
        try:
            with suppress(ValueError):
                np.testing.assert_array_equal(read_archive(path).arrays["x"], np.ones(2))
            largest = max(largest, tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert largest < 2**20
