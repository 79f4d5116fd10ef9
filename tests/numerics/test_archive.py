"""Archives: atomic writes, reading that runs nothing."""

import pickle

import numpy as np
import pytest

from latlin.numerics import archive
from latlin.numerics.archive import read_archive, write_archive


def test_round_trip(tmp_path):
    write_archive(tmp_path / "a.npz", {"version": 1, "name": "γ"}, {"x": np.arange(3.0)})
    header, arrays = read_archive(tmp_path / "a.npz")
    assert header == {"version": 1, "name": "γ"}
    np.testing.assert_array_equal(arrays["x"], [0.0, 1.0, 2.0])


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    write_archive(path, {"n": 1}, {"x": np.ones(2)})

    def full_disk(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(archive.np, "savez", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_archive(path, {"n": 2}, {"x": np.zeros(2)})
    monkeypatch.undo()
    assert read_archive(path)[0] == {"n": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


@pytest.mark.parametrize("damage", ["truncated", "text", "no header"])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "a.npz"
    write_archive(path, {"n": 1}, {"x": np.arange(100.0)})
    content = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "text":
        path.write_text("x,y\n1,2\n")
    else:
        np.savez(path, x=np.ones(2))
    with pytest.raises(ValueError, match=r"a\.npz is not a readable latlin archive"):
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


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        read_archive(tmp_path / "nothing.npz")
