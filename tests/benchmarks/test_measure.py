"""How often an action is called, and which of its times count; with a clock that the test sets."""

from itertools import chain, repeat

import pytest

import _measure
from _task import Trial


@pytest.fixture
def timed(monkeypatch):
    """Measure an action whose calls take the given seconds; the last one lasts."""

    def run(*seconds, compiled=0, fill=False, **parts):
        times = chain(seconds, repeat(seconds[-1]))
        monkeypatch.setattr(_measure, "clock", lambda action: (next(times), action()))
        monkeypatch.setattr(_measure, "new_kernels", lambda since: compiled)
        return _measure.measure(Trial(lambda: 7.0, **parts), "small", fill)

    return run


def test_the_first_call_stands_alone_and_the_best_of_the_others_counts(timed):
    found = timed(0.9, 0.2, 0.1, 0.3)
    assert (found["first"], found["steady"], found["cost"], found["calls"]) == (0.9, 0.1, 0.1, 4)


def test_short_calls_are_repeated_until_there_is_something_to_measure(timed):
    assert timed(0.0625)["calls"] == 1 + 8
    assert timed(0.0)["calls"] == 1 + _measure.MOST


def test_long_calls_are_not_repeated(timed):
    assert timed(5.0)["calls"] == 2
    only = timed(100.0)
    assert (only["calls"], only["steady"], only["cost"]) == (1, None, 100.0)


def test_a_first_call_that_compiled_is_not_taken_for_a_long_one(timed):
    assert timed(100.0, 0.3, compiled=2)["steady"] == 0.3


def test_a_process_that_only_fills_the_cache_ends_after_a_call_that_compiled(timed):
    assert timed(100.0, 0.3, compiled=2, fill=True) == {"compiled": 2}
    assert timed(0.9, 0.2, compiled=0, fill=True)["steady"] == 0.2


def test_what_does_not_count_seconds_is_not_called_again_if_it_takes_some(timed):
    once = timed(5.0, cost=float)
    assert (once["calls"], once["cost"], once["steady"]) == (1, 7.0, None)
    assert timed(0.3, cost=float)["calls"] > 1


def test_flops_become_a_share_of_the_rate_of_products(timed, monkeypatch):
    monkeypatch.setattr(_measure, "product_rate", lambda: 1e9)
    found = timed(0.9, 0.25, flops=lambda result: 1e7 * result)
    assert found["accuracy"] == {"share of dgemm": pytest.approx(7e7 / 0.25 / 1e9)}


def test_a_trial_may_judge_its_result_and_say_what_is_compared(timed):
    found = timed(0.3, cost=lambda result: 2.0 * result, judge=lambda result: {"result": result})
    assert (found["cost"], found["steady"], found["accuracy"]) == (14.0, 0.3, {"result": 7.0})
