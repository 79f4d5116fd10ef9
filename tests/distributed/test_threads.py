"""Blocks that are worked on beside each other: in order, one thread each."""

import pytest

from latlin.distributed import blocks as threads
from latlin.distributed.blocks import side_by_side
from latlin.numerics.threads import thread_count


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_work_is_shared_in_order(count, monkeypatch):
    monkeypatch.setattr(threads, "thread_count", lambda: count)
    taken = []

    def parts():
        for part in range(20):
            taken.append(part)
            yield part

    found = []
    for answer in side_by_side(lambda part: part**2, parts(), 20):
        found.append(answer)
        assert len(taken) - len(found) <= (count if count > 1 else 0)
    assert found == [part**2 for part in range(20)]


def test_an_error_ends_the_work(monkeypatch):
    monkeypatch.setattr(threads, "thread_count", lambda: 2)
    with pytest.raises(ZeroDivisionError):
        list(side_by_side(lambda part: 1 // part, [1, 2, 0, 3, 4, 5], 6))


def test_a_part_has_one_thread(monkeypatch):
    monkeypatch.setattr(threads, "thread_count", lambda: 2)
    assert list(side_by_side(lambda part: thread_count(), range(4), 4)) == [1, 1, 1, 1]
