"""A word where loops are compiled while somebody waits."""

from __future__ import annotations

import time

from numba.core import event

from latlin.numerics.threads import SAID, announce_compiling


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
