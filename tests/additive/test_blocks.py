"""Additive models of rows in blocks give the numbers of the rows in memory."""

from __future__ import annotations

import numpy as np
import pytest

from latlin import engines
from latlin.additive import AdditiveModel
from latlin.additive import blocks as additive_blocks
from latlin.distributed import LocalBlocks, frame_blocks

N = 600


def _frame(family="gaussian"):
    rng = np.random.default_rng(2)
    g, h = rng.integers(25, size=N), np.array(list("abcdefgh"))[rng.integers(8, size=N)]
    x, t = rng.standard_normal(N), rng.uniform(0, 10, N)
    eta = (
        0.3 * x
        + np.sin(t)
        + 0.7 * rng.standard_normal(25)[g]
        + 0.4 * rng.standard_normal(8)[np.searchsorted(list("abcdefgh"), h)]
    )
    y = {
        "gaussian": lambda: 20.0 + eta + 0.5 * rng.standard_normal(N),
        "bernoulli": lambda: (rng.random(N) < 1 / (1 + np.exp(-eta))).astype(float),
        "negative-binomial": lambda: rng.poisson(np.exp(0.5 * eta + 0.3 * rng.standard_normal(N))).astype(float),
    }[family]()
    return {"y": y, "x": x, "t": t, "g": g, "h": h}


def _same(one, other, atol):
    assert other.log_evidence_ == pytest.approx(one.log_evidence_, abs=atol)
    for name in one.hyperparameters_.names:
        assert other.hyperparameters_[name]["mean"] == pytest.approx(one.hyperparameters_[name]["mean"], rel=10 * atol)
    np.testing.assert_allclose(other.posterior_.mean, one.posterior_.mean, atol=10 * atol)
    np.testing.assert_allclose(other.posterior_.variance, one.posterior_.variance, rtol=100 * atol)


@pytest.mark.parametrize("manner", ["maximise", "integrate"])
def test_a_normal_response(manner):
    formula, frame = "y ~ x + s(t) + (1 | g) + (1 | h)", _frame()
    options = {"hyperparameters": manner, "priors": {"sd(h)": 0.4, "sd(s(t))": 1.0}}
    one = AdditiveModel(formula, **options).fit(frame)
    other = AdditiveModel(formula, **options).fit(frame_blocks(frame, rows=130))
    _same(one, other, 1e-7)
    np.testing.assert_allclose(other.predict(frame), one.predict(frame), atol=1e-6)
    assert other.evidence_kind_ == one.evidence_kind_


def test_normal_rows_are_passed_over_a_few_times_however_many_fits(monkeypatch):
    passes = []
    monkeypatch.setattr(LocalBlocks, "total", lambda *a, own=LocalBlocks.total: passes.append(1) or own(*a))
    model = AdditiveModel("y ~ x + (1 | g)", hyperparameters="integrate").fit(frame_blocks(_frame(), rows=200))
    assert model.hyperparameters_.note.endswith("fits")
    assert len(passes) <= 6


@pytest.mark.parametrize("family", ["bernoulli", "negative-binomial"])
def test_other_responses_by_gaussian_kl(family):
    formula, frame = "y ~ x + (1 | g)", _frame(family)
    options = {"family": family, "engine": "gkl", "hyperparameters": "maximise"}
    one = AdditiveModel(formula, **options).fit(frame)
    other = AdditiveModel(formula, **options).fit(frame_blocks(frame, rows=170))
    _same(one, other, 1e-5)


def test_labels_of_a_response_in_blocks_that_have_but_one_of_them():
    frame = _frame("bernoulli")
    order = np.argsort(frame["y"], kind="stable")
    sorted_frame = {name: values[order] for name, values in frame.items()}
    words = {**sorted_frame, "y": np.where(sorted_frame["y"] > 0, "yes", "no")}
    options = {"family": "bernoulli", "engine": "gkl", "priors": {"sd(g)": 0.7}}
    one = AdditiveModel("y ~ x + (1 | g)", **options).fit(sorted_frame)
    other = AdditiveModel("y ~ x + (1 | g)", **options).fit(frame_blocks(words, rows=100))
    np.testing.assert_allclose(other.posterior_.mean, one.posterior_.mean, atol=1e-5)


def test_dask_frames_have_the_digits_of_local_blocks():
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    frame = _frame("bernoulli")
    options = {"family": "bernoulli", "priors": {"sd(g)": 0.7}}
    local = AdditiveModel("y ~ x + (1 | g) + (1 | h)", **options).fit(frame_blocks(frame, rows=200))
    table = dd.from_pandas(pd.DataFrame(frame), chunksize=200)
    assert table.npartitions == 3
    elsewhere = AdditiveModel("y ~ x + (1 | g) + (1 | h)", **options).fit(table)
    np.testing.assert_array_equal(elsewhere.posterior_.mean, local.posterior_.mean)
    assert elsewhere.log_evidence_ == local.log_evidence_


def test_a_sample_has_every_label_and_terms_are_set_up_from_it(monkeypatch):
    monkeypatch.setattr(additive_blocks, "SAMPLE", 100)
    frame = _frame()
    blocks, count, table = additive_blocks.open_table(frame_blocks(frame, rows=130))
    assert count == N
    assert 100 <= len(table["y"]) < 350
    assert set(table["g"]) == set(frame["g"])
    assert set(table["h"]) == set(frame["h"])
    one = AdditiveModel("y ~ x + (1 | g)", hyperparameters="maximise").fit(frame)
    other = AdditiveModel("y ~ x + (1 | g)", hyperparameters="maximise").fit(blocks)
    # all rows count: only the units of default priors differ
    assert other.effects()["x"]["mean"] == pytest.approx(one.effects()["x"]["mean"], abs=0.002)
    assert other.effects()["x"]["sd"] == pytest.approx(one.effects()["x"]["sd"], rel=0.01)


def test_a_fit_of_blocks_goes_on_from_its_checkpoints(tmp_path, monkeypatch):
    frame, path = _frame("bernoulli"), tmp_path / "fit"
    make = lambda: AdditiveModel("y ~ x + (1 | g)", family="bernoulli", hyperparameters="maximise")  # noqa: E731
    whole = make().fit(frame_blocks(frame, rows=200))
    passes: list[int] = []
    own = LocalBlocks.total

    def total(*arguments):
        passes.append(1)
        if limit and len(passes) > limit:
            raise KeyboardInterrupt
        return own(*arguments)

    monkeypatch.setattr(LocalBlocks, "total", total)
    limit = 15
    with pytest.raises(KeyboardInterrupt):
        make().fit(frame_blocks(frame, rows=200), checkpoint=path)
    kept = len(list(tmp_path.iterdir()))
    assert kept >= 2
    limit = 0
    passes.clear()
    again = make().fit(frame_blocks(frame, rows=200), checkpoint=path)
    with_files = len(passes)
    passes.clear()
    make().fit(frame_blocks(frame, rows=200))
    assert with_files < len(passes)
    assert again.log_evidence_ == pytest.approx(whole.log_evidence_, abs=1e-7)
    np.testing.assert_allclose(again.posterior_.mean, whole.posterior_.mean, atol=1e-5)


def test_mapped_columns_are_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("latlin.distributed.opening.BLOCK_BYTES", 2**12)
    frame = {name: values for name, values in _frame().items() if name != "h"}
    mapped = {}
    for name, values in frame.items():
        mapped[name] = np.memmap(tmp_path / name, values.dtype, "w+", shape=values.shape)
        mapped[name][:] = values
    model = AdditiveModel("y ~ x + (1 | g)", hyperparameters="maximise").fit(mapped)
    one = AdditiveModel("y ~ x + (1 | g)", hyperparameters="maximise").fit(frame)
    _same(one, model, 1e-7)


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_rows_in_blocks_are_left_out_where_they_are(family):
    frame = {**_frame(family), "w": np.tile([1.0, 2.0], N // 2)}
    manner = "integrate" if family == "gaussian" else "maximise"
    engine = "auto" if family == "gaussian" else engines.GaussianKL(tol=1e-8)
    options = {"family": family, "engine": engine, "hyperparameters": manner}
    formula = "y | weights(w) ~ x + (1 | g)"
    one = AdditiveModel(formula, **options).fit(frame).loo()
    other = AdditiveModel(formula, **options).fit(frame_blocks(frame, rows=130)).loo()
    assert len(other.pointwise) == N
    for name in ("pointwise", "pit", "pareto_k", "spread"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), atol=2e-5, err_msg=name)
    assert other.compare(one) == pytest.approx((0.0, 0.0), abs=1e-3)


@pytest.mark.parametrize("together", [100_000, 150])
@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_groups_of_rows_in_blocks_are_left_out(family, together, monkeypatch):
    """Labels are in all blocks; of `h` the coefficients are fewer than the rows, of `pair` the rows are fewer."""
    monkeypatch.setattr("latlin.additive.loo.TOGETHER", together)
    frame = {**_frame(family), "pair": np.arange(N) % 300}
    engine = "auto" if family == "gaussian" else engines.GaussianKL(tol=1e-8)
    options = {"family": family, "engine": engine, "priors": {"sd(g)": 0.7, "sd(h)": 0.5}, "hyperparameters": "fixed"}
    formula = "y ~ x + (1 | g) + (1 | h)"
    one = AdditiveModel(formula, **options).fit(frame)
    other = AdditiveModel(formula, **options).fit(frame_blocks(frame, rows=130))
    for group in ("h", "pair"):
        expected, found = one.loo(group), other.loo(group)
        assert found.labels.tolist() == expected.labels.tolist()
        np.testing.assert_allclose(found.pointwise, expected.pointwise, atol=1e-5)
        np.testing.assert_allclose(found.spread, expected.spread, atol=1e-5)


def test_loo_of_blocks_needs_stand_ins_that_marginals_say():
    options = {"family": "bernoulli", "engine": "laplace", "hyperparameters": "fixed"}
    model = AdditiveModel("y ~ x + (1 | g)", **options).fit(frame_blocks(_frame("bernoulli"), rows=130))
    with pytest.raises(ValueError, match="needs the engine 'gkl' or 'exact', got 'laplace'"):
        model.loo()
