"""Folds of rows in blocks: dealt out evenly and alike, scored as the same folds are in memory."""

import pickle
from importlib import import_module

import numpy as np
import pytest
from scipy.stats import norm, poisson
from sklearn.base import clone

from latlin.distributed import LocalBlocks
from latlin.distributed.blocks import Block
from latlin.linear import BayesianLinearRegression, BayesianLogisticRegression, BayesianPoissonRegression
from latlin.report import assess
from latlin.report.assess import FoldAssignment, held_out_score


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((100, 3))
    return X, X @ [1.0, -2.0, 0.0] + 0.7 * rng.standard_normal(100)


def folds_of(X, y, rows, deal):
    blocks = LocalBlocks.of(X, y, rows=rows)
    return np.concatenate([deal.fold_of(block) for block in blocks])


def test_numbers_by_hand(numbers):
    X, y = numbers
    model = BayesianLinearRegression(prior_scale=1.0, noise_scale=0.7)
    seen = assess(model, LocalBlocks.of(X, y, rows=30), folds=4)
    fold = folds_of(X, y, 30, FoldAssignment(4, by_label=False))
    density, baseline, wrong = np.empty(100), np.empty(100), np.empty(100)
    for place in range(4):
        train, test = fold != place, fold == place
        mean, sd = clone(model).fit(X[train], y[train]).predict(X[test], return_std=True)
        density[test] = norm.logpdf(y[test], mean, sd)
        baseline[test] = norm.logpdf(y[test], y[train].mean(), y[train].std())
        wrong[test] = y[test] - mean
    assert (seen.folds, seen.rows, seen.unconverged) == (4, 100, 0)
    assert seen.log_density == pytest.approx(density.mean(), abs=1e-8)
    assert seen.log_density_error == pytest.approx(density.std(ddof=1) / 10, abs=1e-8)
    assert seen.baseline == pytest.approx(baseline.mean(), abs=1e-10)
    assert seen.gain_error == pytest.approx((density - baseline).std(ddof=1) / 10, abs=1e-8)
    assert seen.scores["root mean square error"] == pytest.approx(np.sqrt(np.mean(wrong**2)), abs=1e-8)
    assert seen.scores["R²"] == pytest.approx(1 - np.mean(wrong**2) / y.var(), abs=1e-8)
    assert [group["size"] for group in seen.curve] == [100.0] * 4
    assert held_out_score(model, LocalBlocks.of(X, y, rows=30), folds=4) == (seen.log_density, seen.log_density_error)


def test_very_many_rows_are_scored_in_part(numbers, monkeypatch):
    X, y = numbers
    model, blocks = BayesianLinearRegression(prior_scale=1.0, noise_scale=0.7), LocalBlocks.of(X, y, rows=30)
    whole = assess(model, blocks, folds=2)
    monkeypatch.setattr(import_module("latlin.report.assess"), "MOST_ROWS", 50)
    part = assess(model, blocks, folds=2)
    assert (part.log_density, part.log_density_error, part.rows) == (whole.log_density, whole.log_density_error, 100)
    assert 50 <= part.curve[0]["size"] < 60  # each second row of every fold of a block, the first among them


def test_labels_and_blocks_of_one_row():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((30, 2))
    y = np.where(X[:, 0] + rng.logistic(size=30) > 0, "yes", "no")
    model = BayesianLogisticRegression(prior_scale=1.0, engine="laplace")
    seen = assess(model, LocalBlocks.of(X, y, rows=1), folds=3)
    fold = np.arange(30) % 3  # one row per block: the folds take turns
    table = np.empty((30, 2))
    for place in range(3):
        table[fold == place] = clone(model).fit(X[fold != place], y[fold != place]).predict_proba(X[fold == place])
    chances = table[np.arange(30), (y == "yes").astype(int)]
    assert seen.log_density == pytest.approx(np.log(chances).mean(), abs=1e-6)
    assert seen.scores["accuracy"] == np.mean((table[:, 1] > 0.5) == (y == "yes"))
    assert seen.curve_kind == "probability"


def test_every_label_is_spread_over_the_folds():
    y = np.repeat([0, 1, 2], [50, 7, 20])[np.random.default_rng(0).permutation(77)]
    block = Block(np.zeros((77, 1)), y, number=5)
    fold = FoldAssignment(4, by_label=True).fold_of(block)
    for label, least in ((0, 12), (1, 1), (2, 5)):
        counts = np.bincount(fold[y == label], minlength=4)
        assert counts.min() >= least
        assert counts.max() <= least + 1
    np.testing.assert_array_equal(fold, FoldAssignment(4, by_label=True).fold_of(block))
    assert np.any(fold != FoldAssignment(4, by_label=True).fold_of(block._replace(number=1)))


def test_folds_that_cannot_be_are_refused(numbers):
    X, y = numbers
    model = BayesianLogisticRegression(prior_scale=1.0, engine="laplace")
    with pytest.raises(ValueError, match="class 1 is in one fold only"):
        assess(model, LocalBlocks.of(X, np.eye(100, dtype=int)[3], rows=30), folds=3)
    for folds in (1, 101):
        with pytest.raises(ValueError, match=f"got {folds}"):
            assess(BayesianLinearRegression(), LocalBlocks.of(X, y, rows=30), folds=folds)


class Far(LocalBlocks):
    """Blocks to which what they are asked comes as bytes, as to other processes."""

    def total(self, summand, *shared):
        return super().total(*pickle.loads(pickle.dumps((summand, *shared))))

    def each(self, function, *shared):
        return super().each(*pickle.loads(pickle.dumps((function, *shared))))


def test_what_is_asked_travels(numbers):
    X, y = numbers
    model = BayesianLogisticRegression(prior_scale=1.0, engine="laplace")
    assert assess(model, Far.of(X, y > 0, rows=30), folds=2) == assess(
        model, LocalBlocks.of(X, y > 0, rows=30), folds=2
    )


def test_exposures_are_part_of_densities_and_baselines():
    rng = np.random.default_rng(4)
    X, offset = rng.standard_normal((90, 2)), np.log(rng.uniform(0.5, 20.0, 90))
    y = rng.poisson(np.exp(offset + 0.3 * X[:, 0]))
    model = BayesianPoissonRegression(prior_scale=0.5)
    seen = assess(model, LocalBlocks.of(X, y, offset=offset, rows=40), folds=3)
    fold = folds_of(X, y, 40, FoldAssignment(3, by_label=False))
    density, baseline = np.empty(90), np.empty(90)
    for place in range(3):
        train, test = fold != place, fold == place
        fitted = clone(model).fit(X[train], y[train], offset=offset[train])
        density[test] = fitted.log_predictive_density(X[test], y[test], offset=offset[test])
        rate = y[train].sum() / np.exp(offset[train]).sum()
        baseline[test] = poisson.logpmf(y[test], rate * np.exp(offset[test]))
    assert seen.log_density == pytest.approx(density.mean(), abs=1e-6)
    assert seen.baseline == pytest.approx(baseline.mean(), abs=1e-10)


def test_offsets_of_numbers_and_labels_are_part_of_baselines():
    rng = np.random.default_rng(5)
    X, offset = rng.standard_normal((80, 1)), 3.0 * rng.standard_normal(80)
    y = offset + rng.logistic(size=80)
    numbers, labels = BayesianLinearRegression(prior_scale=0.5), BayesianLogisticRegression(prior_scale=0.5)
    seen = assess(numbers, LocalBlocks.of(X, y, offset=offset, rows=40), folds=2)
    fold = folds_of(X, y, 40, FoldAssignment(2, by_label=False))
    rest, baseline = y - offset, np.empty(80)
    for place in range(2):
        train, test = fold != place, fold == place
        baseline[test] = norm.logpdf(rest[test], rest[train].mean(), rest[train].std())
    assert seen.baseline == pytest.approx(baseline.mean(), abs=1e-10)
    blocks = LocalBlocks.of(X, y > 0, offset=offset, rows=40)
    # log σ(±offset): what is known of the labels without features
    known = -np.logaddexp(0.0, np.where(y > 0, -offset, offset)).mean()
    assert assess(labels, blocks, folds=2).baseline == pytest.approx(known, abs=0.05)
