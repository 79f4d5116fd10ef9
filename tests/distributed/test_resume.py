"""Fits of blocks that were interrupted in the middle of a pass go on to the same numbers."""

import itertools
import warnings
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from latlin.distributed import checkpoints
from latlin.distributed.blocks import LocalBlocks
from latlin.factor import FactorAnalysis, GroupFactorAnalysis
from latlin.factor.analysis import estimator as factor_analysis
from latlin.linear import BayesianLogisticRegression
from latlin.mixture import BayesianGaussianMixture
from latlin.numerics.alerts import ConvergenceWarning
from latlin.numerics.ascent import Checkpoint


class Lost(Exception):
    """The machine went away."""


@dataclass(frozen=True)
class Fragile:
    """Blocks that are lost after some passes."""

    blocks: LocalBlocks
    passes: itertools.count
    last: int

    n_blocks = property(lambda self: self.blocks.n_blocks)
    n_columns = property(lambda self: self.blocks.n_columns)

    def total(self, summand, *shared):
        if next(self.passes) == self.last:
            raise Lost
        return self.blocks.total(summand, *shared)

    def each(self, function, *shared):
        return self.blocks.each(function, *shared)

    def fold(self, function, state, *shared, order=None):
        return self.blocks.fold(function, state, *shared, order=order)


def draws(missing):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3)) @ rng.standard_normal((3, 8)) + rng.standard_normal((120, 8))
    X[rng.random(X.shape) < missing] = np.nan
    return X


CASES = [
    (FactorAnalysis(2, method="em", max_iter=12), 0.1, 9),
    (BayesianGaussianMixture(3, n_init=2, split_merge=4, max_iter=15, random_state=0), 0.0, 30),
    (BayesianGaussianMixture(3, n_init=1, split_merge=4, max_iter=15, random_state=0), 0.0, 30),
    (BayesianGaussianMixture(3, covariance="tied", n_init=1, split_merge=0, random_state=0), 0.0, 8),
    (
        BayesianGaussianMixture(3, covariance="fixed", algorithm="gradient", n_init=1, max_iter=9, random_state=0),
        0.0,
        5,
    ),
    (GroupFactorAnalysis(4, max_iter=12, n_init=2, random_state=0), 0.0, 9),
    (GroupFactorAnalysis(4, max_iter=12, n_init=2, rank=1, random_state=0), 0.05, 22),
]


@pytest.fixture
def every_step(monkeypatch):
    for module in (checkpoints, factor_analysis):
        monkeypatch.setattr(module, "Checkpoint", partial(Checkpoint, every=0.0))


@pytest.mark.parametrize(("model", "missing", "last"), CASES, ids=lambda value: repr(value)[:40])
def test_an_interrupted_fit_goes_on_to_the_same_numbers(model, missing, last, tmp_path, every_step):
    blocks = LocalBlocks.of(draws(missing), rows=50)
    path = tmp_path / "fit"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        with pytest.raises(Lost):
            type(model)(**model.get_params()).fit(Fragile(blocks, itertools.count(), last), checkpoint=path)
        assert list(tmp_path.iterdir()), "nothing was kept"
        passes = itertools.count()
        resumed = type(model)(**model.get_params()).fit(Fragile(blocks, passes, -1), checkpoint=path)
        all_passes = itertools.count()
        expected = type(model)(**model.get_params()).fit(Fragile(blocks, all_passes, -1))
    assert next(passes) < next(all_passes)
    for name in ("components_", "noise_variance_", "means_", "covariances_", "lower_bound_", "log_likelihood_"):
        if hasattr(expected, name):
            np.testing.assert_array_equal(getattr(resumed, name), getattr(expected, name), err_msg=name)
    np.testing.assert_array_equal(resumed.trace_, expected.trace_)
    assert resumed.n_iter_ == expected.n_iter_


@dataclass(frozen=True)
class Interrupted(Fragile):
    """Blocks whose user loses patience after some passes."""

    def total(self, summand, *shared):
        if next(self.passes) == self.last:
            raise KeyboardInterrupt
        return self.blocks.total(summand, *shared)


def test_an_early_interrupt_leaves_a_checkpoint(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3))
    blocks = LocalBlocks.of(X, X[:, 0] + rng.logistic(size=120) > 0.0, rows=50)
    model, path = BayesianLogisticRegression(engine="laplace", prior_scale=1.0), tmp_path / "fit"
    all_passes, passes = itertools.count(), itertools.count()
    expected = model.fit(Fragile(blocks, all_passes, -1)).coef_
    with pytest.raises(KeyboardInterrupt) as caught:
        model.fit(Interrupted(blocks, itertools.count(), 3), checkpoint=path)
    assert str(path) in caught.value.__notes__[0]
    np.testing.assert_array_equal(model.fit(Fragile(blocks, passes, -1), checkpoint=path).coef_, expected)
    assert next(passes) < next(all_passes)


def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    blocks = LocalBlocks.of(draws(0.0), rows=50)
    FactorAnalysis(2).fit(blocks, checkpoint=tmp_path / "fit")
    with pytest.raises(ValueError, match="belongs to another"):
        FactorAnalysis(3).fit(blocks, checkpoint=tmp_path / "fit")
    with pytest.raises(ValueError, match="belongs to another"):
        FactorAnalysis(2).fit(LocalBlocks.of(draws(0.0)[1:]), checkpoint=tmp_path / "fit")


@pytest.mark.parametrize(
    ("model", "X", "message"),
    [
        (FactorAnalysis(2), draws(0.0), "rows in blocks"),
        (BayesianGaussianMixture(2), draws(0.0), "rows in blocks"),
        (GroupFactorAnalysis(2), draws(0.0), "rows in blocks"),
        (FactorAnalysis(2, method="online-em"), LocalBlocks.of(draws(0.0)), "'ml' or 'em'"),
        (BayesianGaussianMixture(2, algorithm="stochastic-natural"), LocalBlocks.of(draws(0.0)), "not for algorithm"),
    ],
)
def test_checkpoints_that_would_not_help_are_refused(model, X, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        model.fit(X, checkpoint=tmp_path / "fit")


def other_rows(y):
    """Rows whose columns have the same sums to the last digit: integers, some of which changed places."""
    X = np.random.default_rng(1).integers(0, 9, (120, 4)).astype(float)
    other = X.copy()
    other[:60, 0] = X[:60, 0][::-1]
    return LocalBlocks.of(X, y, rows=50), LocalBlocks.of(other, y, rows=50)


@pytest.mark.parametrize(
    "model",
    [
        FactorAnalysis(1, method="em", max_iter=3),
        BayesianGaussianMixture(2, n_init=1, random_state=0),
        GroupFactorAnalysis(1, max_iter=3, random_state=0),
    ],
)
def test_a_checkpoint_of_other_rows_with_the_same_sums_is_refused(model, tmp_path):
    first, second = other_rows(None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(first, checkpoint=tmp_path / "fit")
    with pytest.raises(ValueError, match="belongs to another"):
        model.fit(second, checkpoint=tmp_path / "fit")


@pytest.mark.parametrize("engine", ["map", "laplace", "gkl"])
def test_a_checkpoint_of_other_labels_is_refused(engine, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((120, 3)), np.arange(120) % 2
    texts = np.array(["no", "yes"], dtype=object)[y]
    model = BayesianLogisticRegression(engine=engine, prior_scale=1.0)
    first = model.fit(LocalBlocks.of(X, texts, rows=50), checkpoint=tmp_path / "fit").coef_
    again = model.fit(LocalBlocks.of(X, texts.copy(), rows=50), checkpoint=tmp_path / "fit").coef_
    np.testing.assert_array_equal(again, first)
    for blocks in (
        LocalBlocks.of(X, texts[::-1].copy(), rows=50),
        LocalBlocks.of(X, texts, offset=np.linspace(0, 1, 120), rows=50),
    ):
        with pytest.raises(ValueError, match="belongs to another"):
            model.fit(blocks, checkpoint=tmp_path / "fit")


def test_a_checkpoint_of_other_groups_is_refused(tmp_path):
    blocks, model = LocalBlocks.of(draws(0.0), rows=50), GroupFactorAnalysis(2, scale="feature", random_state=0)
    model.fit(blocks, groups=list("aaaabbbb"), checkpoint=tmp_path / "fit")
    with pytest.raises(ValueError, match="belongs to another"):
        model.fit(blocks, groups=list("aaabbbbb"), checkpoint=tmp_path / "fit")
