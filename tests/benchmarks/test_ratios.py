"""The check of ratios: finds what got slower, keeps quiet about the rest."""

import json

from _ratios import accept, ratios_of, read, report, worse
from _record import Record, with_ratios


def measured(seconds, peer=2.0, status="ok", workload="fit"):
    ours = Record(workload, "small", "ours", cost=seconds if status == "ok" else None, status=status, note="why")
    return with_ratios([ours, Record(workload, "small", "peer", package="other", role="peer", cost=peer)])


STORED = ratios_of(measured(1.0))


def test_only_ratios_of_latlin_are_kept():
    assert STORED == {"fit": {"small": {"ours": 0.5}}}


def test_a_slower_machine_is_no_regression():
    assert worse(STORED, measured(10.0, peer=20.0)) == []


def test_a_ratio_that_grew_by_more_than_the_factor_is_found():
    assert worse(STORED, measured(1.4)) == []
    (change,) = worse(STORED, measured(1.6))
    assert (change.workload, change.case, change.method, change.before, change.now) == (
        "fit",
        "small",
        "ours",
        0.5,
        0.8,
    )
    assert worse(STORED, measured(1.6), factor=2.0) == []
    assert "fit: small: ours: 0.5 → 0.8, 1.6 times what it was, against peer" in report([change])


def test_a_method_that_fails_now_is_worse_and_one_that_was_not_run_is_not():
    (change,) = worse(STORED, measured(1.0, status="failed"))
    assert change.now is None
    assert change.reason == "failed: why"
    assert worse(STORED, []) == []
    assert worse(STORED, measured(1.0, workload="another")) == []


def test_an_absent_peer_takes_the_ratio_away_but_is_no_regression():
    assert worse(STORED, [r for r in with_ratios(measured(1.0)[:1])]) == []


def test_accepting_keeps_other_workloads_and_sizes(tmp_path):
    path = tmp_path / "ratios.json"
    assert read(path, "small") == {}
    accept(path, "full", measured(1.0))
    accept(path, "small", measured(1.0, workload="another"))
    accept(path, "small", measured(3.0))
    assert read(path, "small") == {"another": {"small": {"ours": 0.5}}, "fit": {"small": {"ours": 1.5}}}
    assert set(json.loads(path.read_text(encoding="utf8"))) == {"small", "full"}
