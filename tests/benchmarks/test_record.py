"""Records: what a ratio is to, how runs are merged, what a broken write leaves behind."""

import json
import os
from dataclasses import replace

import pytest

from _record import Record, load, merge, save, with_ratios, write_atomically

OURS = Record("fit", "small", "ours", cost=1.0)
FAST = Record("fit", "small", "fast", package="other", role="peer", cost=4.0)
SLOW = Record("fit", "small", "slow", package="slow", role="peer", cost=10.0)
LIMIT = Record("fit", "small", "limit", role="yardstick", cost=0.5)


def ratio(records, method):
    return next((r.ratio, r.against) for r in with_ratios(records) if r.method == method)


def test_a_ratio_is_to_the_fastest_peer():
    assert ratio([OURS, SLOW, FAST, LIMIT], "ours") == (0.25, "fast")
    assert ratio([OURS, SLOW, FAST, LIMIT], "slow") == (2.5, "fast")


def test_a_yardstick_is_used_where_no_peer_has_a_number():
    absent = replace(FAST, status="absent", cost=None)
    assert ratio([OURS, absent, LIMIT], "ours") == (2.0, "limit")
    assert ratio([OURS, absent, LIMIT], "fast") == (None, "")
    assert ratio([OURS, absent], "ours") == (None, "")


def test_cases_are_compared_apart():
    other = replace(FAST, case="large", cost=0.1)
    assert ratio([OURS, other, FAST], "ours") == (0.25, "fast")


def test_merging_replaces_cases_and_drops_what_a_finished_workload_no_longer_has():
    old = [OURS, replace(OURS, case="gone"), replace(OURS, workload="another")]
    new = [replace(OURS, cost=3.0), FAST]
    assert [r.key for r in merge(old, new)] == [
        ("another", "small", "ours"),
        ("fit", "gone", "ours"),
        ("fit", "small", "ours"),
        ("fit", "small", "fast"),
    ]
    finished = merge(old, new, finished=["fit"])
    assert [(r.workload, r.case, r.cost, r.ratio) for r in finished] == [
        ("another", "small", 1.0, None),
        ("fit", "small", 3.0, 0.75),
        ("fit", "small", 4.0, 1.0),
    ]


def test_files_come_back_as_they_were(tmp_path):
    path = tmp_path / "results" / "small.json"
    records = [replace(OURS, accuracy={"bound": -1.5, "kind": "lower bound"}, note="N × D"), FAST]
    save(path, "small", [{"date": "2026-11-16"}], records)
    assert load(path) == ([{"date": "2026-11-16"}], records)
    assert load(tmp_path / "none.json") == ([], [])


def test_another_format_is_refused(tmp_path):
    path = tmp_path / "small.json"
    path.write_text(json.dumps({"format": 0, "runs": [], "records": []}), encoding="utf8")
    with pytest.raises(ValueError, match="format 0, expected 1"):
        load(path)


def test_a_write_that_breaks_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "small.json"
    write_atomically(path, "old")

    def broken(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert path.read_text(encoding="utf8") == "old"
    assert list(tmp_path.iterdir()) == [path]
