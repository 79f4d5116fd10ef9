"""A word where loops are compiled while somebody waits, and when they are compiled again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from numba.core import event

from latlin.numerics.threads import SAID, announce_compiling

CALLER = """
from callee import COUNT, PART, add
from latlin.numerics.threads import njit

@njit(cache=True)
def call(part):
    return COUNT * add(part.number)

print(call(PART), sum(call.stats.cache_hits.values()))
"""
CALLEE = """
from typing import NamedTuple
from latlin.numerics.threads import INNER, njit
from counts import COUNT

class {part}(NamedTuple):
    number: float

PART = {part}(1.0)

@njit(**INNER)
def add(x):
    return x + {added}
"""


def compile_for(seconds: float) -> None:
    with event.trigger_event("numba:compile", data={}):
        time.sleep(seconds)


def test_long_compilations_are_said_once_and_short_ones_never() -> None:
    said: list[str] = []
    with announce_compiling(said.append, patience=0.2):
        compile_for(0.001)
        assert said == []
        for _ in range(3):
            compile_for(0.15)
    assert said == [SAID]
    compile_for(0.3)
    assert said == [SAID]


def called(folder: Path, added: float, count: float, part: str = "Part") -> tuple[float, int]:
    """What a compiled loop says whose parts stand in three files, and how often it came from disk."""
    (folder / "caller.py").write_text(CALLER)
    (folder / "callee.py").write_text(CALLEE.format(added=added, part=part))
    (folder / "counts.py").write_text(f"COUNT = {count}\n")
    # older versions of Numba also go by the time at which the file of the loop itself was written
    os.utime(folder / "caller.py", (0, 0))
    variables = os.environ | {"NUMBA_CACHE_DIR": str(folder / "kept")}
    # Python's own files on disk go by the second at which a file was written
    options = ["-B", "-c", "import caller"]
    done = subprocess.run(
        [sys.executable, *options], cwd=folder, env=variables, check=True, capture_output=True, text=True
    )
    value, hits = done.stdout.split()
    return float(value), int(hits)


def test_loops_are_compiled_again_when_a_loop_or_a_number_of_another_file_has_changed(tmp_path: Path) -> None:
    assert called(tmp_path, added=1.0, count=1.0) == (2.0, 0)
    assert called(tmp_path, added=1.0, count=1.0) == (2.0, 1)
    assert called(tmp_path, added=2.0, count=1.0) == (3.0, 0)
    assert called(tmp_path, added=2.0, count=5.0) == (15.0, 0)


def test_a_class_that_is_no_more_is_not_looked_for_on_disk(tmp_path: Path) -> None:
    assert called(tmp_path, added=1.0, count=1.0, part="Part") == (2.0, 0)
    assert called(tmp_path, added=1.0, count=1.0, part="Pair") == (2.0, 0)
