"""Checks of a model: each fails on data made to fail it, passes on data of the model, and says what to do."""

import numpy as np
import pytest
from scipy import sparse

from latlin.diagnostics.data_checks import check_copied_labels, check_copied_numbers, check_separation
from latlin.diagnostics.model_checks import (
    OF_FEATURES,
    Check,
    ModelChecks,
    check_baseline,
    check_calibration,
    check_coverage,
    check_predictions,
)

rng = np.random.default_rng(0)
X = rng.standard_normal((200, 3))
Y = X[:, 0] + rng.standard_normal(200) > 0.0
NAMES = ["age", "dose", "noise"]


def test_the_verdict_is_that_of_all_checks():
    good, bad = Check("baseline", True, "fine"), Check("leakage", False, "'x' copies y", "Leave it out")
    assert ModelChecks((good,)).verdict == "fits"
    found = ModelChecks((good, bad))
    assert found.verdict == "does not fit"
    assert found.failed == (bad,)
    assert str(found) == "Model: does not fit. 'x' copies y. Leave it out."
    assert found.including([bad._replace(passed=True)]).verdict == "fits"


def test_a_baseline_is_beaten_not_beaten_or_better():
    assert check_baseline(0.3, 0.1, 50).passed
    assert not check_baseline(0.3, 0.1, 50).is_caution
    undecided, worse = check_baseline(0.1, 0.1, 50), check_baseline(-0.4, 0.1, 50)
    assert undecided.is_caution
    assert not worse.passed
    assert "predict worse" in worse.sentence
    # what one needless feature costs
    assert check_baseline(-0.01, 0.001, 100).is_caution
    # features that help little are no misfit, but nobody should miss that they do
    found = ModelChecks((undecided,))
    assert str(found).startswith("Model: fits (checked: baseline). Be careful. The features do not clearly predict")
    assert ModelChecks((undecided, worse)).verdict == "does not fit"


@pytest.mark.parametrize(
    ("spread", "passes", "remedy"), [(1.0, True, ""), (2.0, False, "narrow"), (0.4, False, "wide")]
)
def test_intervals_hold_what_they_promise(spread, passes, remedy):
    from scipy.special import ndtr

    found = check_coverage(ndtr(spread * np.random.default_rng(1).standard_normal(400)))
    assert found.passed == passes
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("noise", "why", "remedy"),
    [
        (lambda rng: rng.standard_t(2, 500), "a few rows far off inflate it (excess kurtosis", "RobustRegression"),
        (lambda rng: np.exp(1.2 * rng.standard_normal(500)), "a few far above theirs inflate it", "logarithm"),
        (lambda rng: rng.uniform(-1.0, 1.0, 500), "choose a family with less variance or lighter tails", "lighter"),
    ],
)
def test_intervals_are_too_wide_for_a_reason_that_residuals_show(noise, why, remedy):
    """Noise is as large as its few far rows make it, and the others lie nearer."""
    from scipy.special import ndtr

    drawn = noise(np.random.default_rng(0))
    found = check_coverage(ndtr((drawn - drawn.mean()) / drawn.std()), remedies=OF_FEATURES)
    assert not found.passed
    assert "They are too wide" in found.remedy
    assert why in found.remedy
    assert remedy in found.remedy


def test_predictions_that_lean_to_one_side_are_found():
    pit = np.random.default_rng(2).beta(1.4, 1.0, 600)
    found = check_coverage(pit)
    assert not found.passed
    assert "low too often" in found.sentence


def test_probabilities_are_checked_against_what_happened():
    p = np.random.default_rng(3).uniform(0.05, 0.95, 2000)
    y = np.random.default_rng(4).random(2000) < p
    assert check_calibration(y, p).passed
    extreme = p**3 / (p**3 + (1 - p) ** 3)
    assert "too extreme" in check_calibration(y, extreme).sentence
    assert "not extreme enough" in check_calibration(y, 0.5 + 0.3 * (p - 0.5)).sentence


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_a_feature_that_separates_is_named(kind):
    assert check_separation(kind(X), Y, NAMES, "no and yes").passed
    separating = np.column_stack([X, np.where(Y, 1.0, -1.0) + 0.1 * X[:, 2]])
    found = check_separation(kind(separating), Y, [*NAMES, "score"], "no and yes")
    assert found.sentence == "'score' separates no and yes completely"
    level = np.column_stack([X, (rng.random(200) < 0.4) & Y])
    assert "'city=Rome'" in check_separation(kind(level), Y, [*NAMES, "city=Rome"], "no and yes").sentence


def test_few_rows_are_separated_by_chance():
    is_one = np.array([False, False, True, True])
    assert check_separation(np.arange(4.0)[:, None], is_one, ["x"], "y").passed


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_a_feature_that_copies_the_target_is_named(kind):
    y = X @ [1.0, 2.0, 0.0] + rng.standard_normal(200)
    assert check_copied_numbers(kind(X), y, NAMES).passed
    for copy in (3.0 * y - 1.0, np.exp(0.3 * y)):
        assert "'total'" in check_copied_numbers(kind(np.column_stack([X, copy])), y, [*NAMES, "total"]).sentence
    place = rng.integers(0, 3, 200)
    assert check_copied_labels(kind(X), place, NAMES).passed
    codes = np.array([5.0, 1.0, 3.0])[place]
    found = check_copied_labels(kind(np.column_stack([X, codes])), place, [*NAMES, "code"], "the grade")
    assert found.sentence == "'code' copies the grade"


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("count", [3, 7])
def test_levels_that_copy_the_target_together_are_named(kind, count):
    """A column of texts is one column of zeros and ones per level but the first; several levels may be one class."""
    level = rng.integers(0, count, 200)
    place = level % 3
    levels = (level[:, None] == np.arange(1, count)).astype(float)
    names = [*NAMES, *(f"code={k}" for k in range(1, count))]
    found = check_copied_labels(kind(np.column_stack([X, levels])), place, names, "the grade")
    assert "'code=1', 'code=2'" in found.sentence
    assert "together copy the grade: each of them occurs with one class only" in found.sentence
    # one row with another class, and levels of a few rows each
    place[0] = (place[0] + 1) % 3
    assert check_copied_labels(kind(np.column_stack([X, levels])), place, names).passed
    rare = (np.arange(9)[:, None] // 2 == np.arange(1, 5)).astype(float)
    assert check_copied_labels(rare, np.repeat([0, 1, 2, 0, 1], 2)[:9], list("abcd")).passed


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_a_feature_whose_ranges_tell_the_classes_is_named(kind):
    score = rng.uniform(0.0, 100.0, 200)
    grade = np.digitize(score, [20.0, 50.0, 80.0])
    found = check_copied_labels(kind(np.column_stack([X, score])), grade, [*NAMES, "score"], "the grade")
    assert found.sentence == "every class of the grade has a range of 'score' of its own"
    score[np.argmin(score)] = 60.0
    assert check_copied_labels(kind(np.column_stack([X, score])), grade, [*NAMES, "score"]).passed
    # chance sorts a few rows
    assert check_copied_labels(np.arange(8.0)[:, None], np.array([0, 0, 0, 0, 0, 0, 1, 2]), ["x"]).passed


def test_predictions_that_are_far_off_are_a_caution():
    y = np.array([0.0, 3.0, 1.0, 5.0, 2.0])
    assert not check_predictions(y, np.array([1.0, 2.0, 1.0, 4.0, 2.0])).is_caution
    found = check_predictions(y, np.array([1.0, 2.0, 1.0, 400.0, 2.0]))
    assert found.is_caution
    assert "the farthest by 400 where 5 was observed" in found.sentence
