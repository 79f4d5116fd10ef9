"""Somebody at a terminal sees a bar within two seconds of the processor, before anything long begins."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("typer")
pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")

STAT = Path("/proc/self/stat")
#: seconds by the clock, as others may be at work
PATIENCE = 120.0


def processor_time(pid):
    """Seconds of the processor that a process has had."""
    words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not STAT.exists(), reason="times of the processor are read in /proc")
@pytest.mark.parametrize("command", ["fit", "compare", "cluster"])
def test_a_bar_is_there_within_two_seconds(command, tmp_path):
    (tmp_path / "rows.csv").write_text("a,b,y\n" + "1,2,3.5\n4,0,6\n5,7,8.5\n" * 9, encoding="utf8")
    target = [] if command == "cluster" else ["--target", "y"]
    words = [sys.executable, "-c", "from latlin.cli import main; main()", command, str(tmp_path / "rows.csv"), *target]
    here, there = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80"}
    child = subprocess.Popen(words, stdin=there, stdout=there, stderr=there, env=environment, cwd=tmp_path)
    os.close(there)
    try:
        shown, started = b"", time.monotonic()
        while b"Loading" not in shown and time.monotonic() - started < PATIENCE:
            shown += os.read(here, 1000)
        took = processor_time(child.pid)
    finally:
        child.kill()
        child.wait()
        os.close(here)
    assert b"Loading" in shown, shown
    assert took < 2.0
