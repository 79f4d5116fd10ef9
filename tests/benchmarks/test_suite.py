"""Tasks in processes of their own: whatever one of them does, there is a record and the others run."""

import ast
import importlib
import json
import re
import tomllib
from dataclasses import replace

import pytest

import _machine
import _suite
import run
from _record import Record, load, save
from doc_pages import Page, read

TOY = '''"""Toys: do they run?

More.
"""

import os
import time
from pathlib import Path

from _task import Task, Trial


def kept():
    block = bytearray(30 * 2**20)
    return Trial(lambda: len(bytearray(60 * 2**20)) + len(block), lambda n: {"bytes": float(n)})


def counted():
    return Trial(lambda: 40.0, cost=lambda found: found)


def raising():
    raise RuntimeError("no luck\\nat all")


def no_package():
    import a_package_that_does_not_exist


def no_data():
    open("/nowhere/set.npz")


def dying():
    return Trial(lambda: os._exit(3))


def compiling():
    kernel = Path(os.environ["NUMBA_CACHE_DIR"]) / "kernel.nbc"

    def action():
        if not kernel.exists():
            time.sleep(0.05)
            kernel.touch()

    return Trial(action)


def sleeping():
    return Trial(lambda: time.sleep(60.0))


def tasks(size):
    if size == "full":
        return [Task(size, "sleeping", sleeping), Task(size, "compiling", compiling)]
    names = ["kept", "raising", "no_package", "no_data", "dying"]
    found = [Task(size, name, globals()[name], package="numpy") for name in names]
    return [
        *found,
        Task(size, "not installed", kept, package="a-package-that-does-not-exist", role="peer"),
        Task(size, "counted", counted, package="numpy", role="peer", unit="evaluations"),
    ]
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A folder with one benchmark that a worker can import."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "toy.py").write_text(TOY, encoding="utf8")
    (folder / "broken.py").write_text('"""Broken."""\nimport a_package_that_does_not_exist\n', encoding="utf8")
    (folder / "reasons.toml").write_text('[toy]\ntitle = "Toys"\nwhy = "they are small"\n', encoding="utf8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(_suite, "LIMITS", {"small": (900.0, 3600.0)})
    return folder


@pytest.fixture
def found(toy):
    return {r.method: r for r in _suite.records("toy", "small")}


def test_every_task_leaves_a_record(found):
    assert {name: r.status for name, r in found.items()} == {
        "kept": "ok",
        "raising": "failed",
        "no_package": "absent",
        "no_data": "absent",
        "dying": "failed",
        "not installed": "absent",
        "counted": "ok",
    }
    assert found["raising"].note == "RuntimeError: no luck at all"
    assert "a_package_that_does_not_exist" in found["no_package"].note
    assert found["no_data"].note == "No such file or directory: set.npz"
    assert found["dying"].note == "ended with code 3"
    kept, counted = found["kept"], found["counted"]
    assert kept.first > 0.0
    assert kept.cost == (kept.steady or kept.first)
    assert kept.accuracy == {"bytes": 90.0 * 2**20}
    # the 60 MiB of a call, not the 30 of the data
    assert kept.memory is None or 55.0 < kept.memory < 75.0
    assert (counted.cost, counted.unit) == (40.0, "evaluations")


def test_a_task_that_takes_too_long_is_stopped(toy):
    with _suite.Worker("toy", "full") as worker:
        assert worker.ask("run", 0, 1.0) == ("out of time", "stopped after 1 s")
        # what comes after it is not touched
        assert worker.ask("run", 1, 900.0)["compiled"] == 1


def test_what_had_to_compile_is_measured_again_unless_caches_are_cold(toy):
    with _suite.Worker("toy", "full", cold=True) as worker:
        assert [_suite.answer(worker, 1, 900.0)["compiled"] for _ in range(2)] == [1, 1]
    with _suite.Worker("toy", "full") as worker:
        assert worker.ask("run", 1, 900.0)["compiled"] == 1
        (toy.parent / "kernel.nbc").unlink()
        assert _suite.answer(worker, 1, 900.0)["compiled"] == 0


@pytest.mark.parametrize(("cold", "times"), [(False, 1), (True, 2)])
def test_a_file_is_imported_once_unless_caches_are_cold(toy, cold, times):
    (toy / "toy.py").write_text(TOY + '\nwith open(__file__ + ".log", "a") as log:\n    log.write("x")\n', "utf8")
    with _suite.Worker("toy", "small", cold) as worker:
        found = [worker.ask("run", number, 900.0)["method"] for number in (0, 6)]
    assert found == ["kept", "counted"]
    assert (toy / "toy.py.log").read_text("utf8") == times * "x"


def test_a_file_that_cannot_be_imported_is_one_record(toy):
    (record,) = _suite.records("broken", "small")
    assert (record.status, record.workload) == ("absent", "broken")
    (record,) = _suite.records("no_such_benchmark", "small")
    assert record.status == "absent"


def test_a_file_that_has_used_its_time_runs_no_more(toy, monkeypatch):
    monkeypatch.setattr(_suite, "LIMITS", {"small": (60.0, 0.0)})
    statuses = {r.status for r in _suite.records("toy", "small")}
    assert statuses == {"out of time", "absent"}


def test_a_whole_run_writes_results_page_and_ratios(toy, monkeypatch, capsys):
    short = TOY.replace('"kept", "raising", "no_package", "no_data", "dying"', '"kept", "raising"')
    (toy / "toy.py").write_text(short, encoding="utf8")
    for name, value in {
        "FOLDER": toy,
        "RESULTS": toy / "results",
        "RATIOS": toy / "ratios.json",
        "REASONS": toy / "reasons.toml",
        "PAGE": toy.parent / "docs" / "benchmarks.md",
        "benchmarks": lambda: ["broken", "toy"],
    }.items():
        monkeypatch.setattr(run, name, value)
    monkeypatch.setattr(_machine, "revision", lambda: "abc1234")
    assert run.main(["--accept"]) == 0
    runs, records = load(toy / "results" / "small.json")
    assert [r.workload for r in records] == ["broken", "toy", "toy", "toy", "toy"]
    assert len(runs) == 1
    assert runs[0]["versions"]["latlin"]
    page = (toy.parent / "docs" / "benchmarks.md").read_text(encoding="utf8")
    assert "## Toys" in page
    assert "failed: RuntimeError" in page
    kept = json.loads((toy / "ratios.json").read_text(encoding="utf8"))["small"]["toy"]["small"]["kept"]
    assert kept > 0.0
    said = capsys.readouterr().out
    assert "[2/2" in said
    assert re.search(r"\| toy \| \d+ \|", said)
    assert "2 files, " in said
    assert all(r.wall > 0.0 for r in records)
    assert run.main(["--resume"]) == 0
    assert "[1/" not in capsys.readouterr().out
    assert load(toy / "results" / "small.json") == (runs, records)
    # one that got slower is found, and only one file is run again
    (toy / "ratios.json").write_text(json.dumps({"small": {"toy": {"small": {"kept": kept / 1e3}}}}), "utf8")
    assert run.main(["--check"]) == 1
    assert "1 worse than accepted" in capsys.readouterr().out
    assert run.main(["--only", "broken"]) == 1
    assert [r.run for r in load(toy / "results" / "small.json")[1]] == [1, 0, 0, 0, 0]


def test_a_resumed_run_leaves_out_what_this_revision_finished():
    now = {"revision": "abc", "caches": "warm"}
    runs = [now | {"finished": ["whole", "again"]}, now | {"revision": "old", "finished": ["older"]}, now]
    records = [
        Record("whole", "a", "x", run=0),
        Record("again", "a", "x", run=0),
        Record("again", "b", "x", run=2),
        Record("older", "a", "x", run=1),
    ]
    assert run.finished((runs, records), now) == {"whole"}
    assert run.finished((runs, records), now | {"caches": "cold"}) == set()


def test_what_took_longer_than_planned_is_named():
    records = [
        Record("quick", "a", "x", wall=2.0),
        Record("slow", "a", "x", wall=50.0),
        Record("slow", "a", "y", wall=11.0),
    ]
    said = run.taken(records, {"quick": 10.0, "slow": 60.0})
    assert "| slow | 61 | 60 |" in said
    assert "2 files, 63 s = 1.1 minutes in all" in said
    assert said.endswith("longer than planned: slow")


def test_the_check_passes_on_what_is_stored_and_fails_on_a_doctored_ratio(tmp_path, monkeypatch, capsys):
    assert run.main(["--check"]) == 0
    runs, records = load(run.RESULTS / "small.json")
    accepted = {(w, c, m) for w, cases in run.read(run.RATIOS, "small").items() for c, ms in cases.items() for m in ms}
    number, victim = next((i, r) for i, r in enumerate(records) if r.key in accepted)
    for factor, code in ((0.9, 0), (1.6, 1)):
        doctored = [*records[:number], replace(victim, ratio=factor * victim.ratio), *records[number + 1 :]]
        save(tmp_path / "small.json", "small", runs, doctored)
        monkeypatch.setattr(run, "RESULTS", tmp_path)
        assert run.main(["--check"]) == code
    assert f"{victim.workload}: {victim.case}: {victim.method}" in capsys.readouterr().out


def functions(stem):
    tree = ast.parse((_suite.FOLDER / f"{stem}.py").read_text(encoding="utf8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, ast.get_docstring(tree)


@pytest.mark.parametrize("stem", _suite.benchmarks())
def test_every_file_is_part_of_the_suite(stem):
    names, docstring = functions(stem)
    assert docstring
    assert "tasks" in names, f"{stem}.py has no function tasks(size)"
    assert "run_alone(__file__, main)" in (_suite.FOLDER / f"{stem}.py").read_text(encoding="utf8")


def test_every_workload_has_its_words():
    words = tomllib.loads(run.REASONS.read_text(encoding="utf8"))
    assert set(words) == set(_suite.benchmarks())
    for stem, reason in words.items():
        assert reason["title"], stem
        assert reason["why"].endswith("."), stem
        assert set(reason) <= {"title", "budget", "why", "text", "profile"}


def test_the_small_size_is_planned_to_take_twenty_minutes_at_most():
    assert set(run.budgets()) == set(_suite.benchmarks())
    assert sum(run.budgets().values()) <= 1200.0


@pytest.mark.parametrize("stem", _suite.benchmarks())
def test_tasks_can_be_listed_at_both_sizes(stem):
    module = importlib.import_module(stem)
    for size in ("small", "full"):
        tasks = module.tasks(size)
        assert len({(task.case, task.method) for task in tasks}) == len(tasks) > 0
        assert {task.role for task in tasks} <= {"latlin", "peer", "yardstick"}


def test_the_links_of_the_words_lead_somewhere():
    text = run.page([], run.reasons(), run.questions_of(run.FOLDER, run.benchmarks()))
    for file, anchor in Page(run.PAGE, text).links():
        target = read(run.PAGE.parent / file)
        assert not anchor or anchor in target.anchors(), f"{file} has no #{anchor}"


def test_the_stored_page_is_the_one_that_the_results_make():
    results = run.stored()
    if results:
        made = run.page(results, run.reasons(), run.questions_of(run.FOLDER, run.benchmarks()))
        assert run.PAGE.read_text(encoding="utf8") == made, "python benchmarks/run.py --page writes it anew"
    assert run.PAGE.exists()
