"""Files that are whole: modes, killed processes."""

import os
import stat
import subprocess
import sys

import pytest

from latlin.numerics.atomic import replace_file, write_text


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_the_mode_is_that_of_every_new_file(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_text(tmp_path / "a.txt", "all")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o400])
def test_the_mode_of_a_file_that_is_replaced_is_kept(tmp_path, mode):
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(mode)
    with replace_file(path) as fresh:
        fresh.write_text("new")
        assert stat.S_IMODE(fresh.stat().st_mode) == 0o600
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


DYING = """
import os, signal, sys
from latlin.numerics.atomic import replace_file
with replace_file(sys.argv[1]) as fresh:
    fresh.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    subprocess.run([sys.executable, "-c", DYING, path], check=False)
    assert len(list(tmp_path.iterdir())) == 2
    assert path.read_text() == "old"
    (tmp_path / ".part-another").write_text("not ours")
    write_text(path, "new")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".part-another", "a.txt"]
    assert path.read_text() == "new"


def test_what_is_being_written_is_left_alone(tmp_path):
    path = tmp_path / "a.txt"
    with replace_file(path) as fresh:
        fresh.write_text("slow")
        write_text(path, "quick")
        assert fresh.exists()
    assert path.read_text() == "slow"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
