"""Tables 5.2, 5.4, 5.5: all printed numbers are on the pages, and what theory demands of them holds."""

import numpy as np
import pytest

from latlin.datasets import correlated_logistic
from reproduction import covariance_claims, covariance_tables, table_5_4
from reproduction.covariance_tables import Plan
from reproduction.page import Measured, differs
from reproduction.printed import TABLE_5_4

TINY = Plan(12, (6, 12, 60), (2, 3), 40, seeds=1)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return covariance_tables.all_scores(tmp_path_factory.mktemp("covariances"), TINY)


def test_no_constrained_bound_exceeds_the_full_one(found):
    for methods in found.values():
        for name in ("Chev", "Band", "Sub", "FA"):
            assert methods[name][0, 1] <= methods["Full"][0, 1] + 1e-4


def test_every_printed_number_has_its_line(found):
    claims = covariance_claims.claims(TABLE_5_4, table_5_4.FULL, found)
    assert sum(claim.what.startswith("seconds") for claim in claims) == 30
    assert sum(claim.agrees is None for claim in claims) == 19 * 6
    same = {column: found[own] for column, own in zip(table_5_4.FULL.columns, found, strict=True)}
    compared = covariance_claims.claims(TABLE_5_4, table_5_4.FULL, same)
    assert all(claim.agrees is not None for claim in compared)
    assert all(claim.reason for claim in compared if not claim.agrees)


def test_few_data_sets_have_at_least_the_printed_spread():
    theirs = Measured(1.0, 0.02)
    assert covariance_claims.ours(np.array([2.0]), theirs).error == pytest.approx(0.02 * np.sqrt(10.0))
    assert covariance_claims.ours(np.array([2.0]), Measured(1.0, 0.0)).error == pytest.approx(0.0025 * np.sqrt(10.0))
    ten = np.arange(10.0)
    assert covariance_claims.ours(ten, theirs).error == pytest.approx(ten.std(ddof=1) / np.sqrt(10.0))


def test_the_page_of_an_unfinished_table_says_what_was_not_run(found, tmp_path):
    """What is kept is read, nothing is fitted, and columns without a data set are said to be not run."""
    full = table_5_4.FULL
    part = dict(zip(full.columns, [*list(found.values())[:2], {}, {}, {}, {}], strict=True))
    claims = covariance_claims.claims(TABLE_5_4, full, part)
    not_run = [claim for claim in claims if claim.reason == covariance_claims.NOT_RUN]
    assert len(not_run) == 19 * 4 + 1
    assert all(claim.agrees is None for claim in not_run)
    assert all(claim.reason for claim in claims if differs(claim))
    covariance_tables.kept_scores(tmp_path, TINY, 0, 6, 2)
    kept = covariance_tables.all_scores(tmp_path, TINY, finished=True)
    assert [len(methods) for methods in kept.values()] == [9, 0, 0, 0, 0, 0]


def test_what_theory_demands_holds_and_can_fail(found):
    order, near, ahead, basis = covariance_claims.expectations(TABLE_5_4, found)
    assert order.agrees
    assert basis.agrees
    wrong = {column: methods | {"Diag": methods["Full"]} for column, methods in found.items()}
    assert not covariance_claims.expectations(TABLE_5_4, wrong)[0].agrees
    text = {column: methods | {covariance_tables.SMALLEST: methods["Full"]} for column, methods in found.items()}
    assert not covariance_claims.expectations(TABLE_5_4, text)[3].agrees
    assert near.agrees is not None
    assert ahead.agrees is not None


def test_the_pages_are_written_from_kept_runs(tmp_path, monkeypatch, found):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(table_5_4, "all_scores", lambda folder, plan, finished: found)
    page, table, picture = table_5_4.run(tmp_path, quick=True)
    assert page.read_text(encoding="utf8").count("| bound, Sub, N = ") == 6
    assert len(table.read_text(encoding="utf8").splitlines()) == 1 + 6 * 9
    assert picture.stat().st_size > 1000


def test_the_generator_draws_what_the_source_says():
    problem = correlated_logistic(4, 300, 20_000, random_state=0)
    rows = np.concatenate([problem.x, problem.new_x])
    np.testing.assert_allclose(rows.std(axis=0), 1.0)
    p = 1.0 / (1.0 + np.exp(-problem.new_x @ problem.weights))
    assert np.mean(problem.new_y > 0) == pytest.approx(p.mean(), abs=4.0 * 0.5 / np.sqrt(20_000))
    again = correlated_logistic(4, 300, 20_000, random_state=0)
    np.testing.assert_array_equal(problem.y, again.y)
    first = correlated_logistic(4, 300, 20_000, random_state=0, labels_first=True)
    np.testing.assert_array_equal(problem.x, first.x)
    assert np.any(first.y != problem.y)
