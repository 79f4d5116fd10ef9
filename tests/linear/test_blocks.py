"""Linear models of rows in blocks: the fits, predictions and refusals of rows in memory."""

import pickle

import dask.array as da
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import latlin
from latlin import engines
from latlin.distributed.blocks import LocalBlocks
from latlin.linear import (
    BayesianBinomialRegression,
    BayesianCountRegression,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianOrdinalRegression,
    BayesianPoissonRegression,
    BayesianProbitRegression,
    BayesianSurvivalRegression,
    RobustRegression,
    SparseRegression,
)

N, D = 80, 4
rng = np.random.default_rng(3)
X = rng.standard_normal((N, D)) * [1.0, 2.0, 0.5, 3.0] + [0.0, 5.0, 1.0, -2.0]
ETA = (X - X.mean(axis=0)) @ [1.0, -0.5, 2.0, 0.3]
WEIGHT = rng.random(N) + 0.2
WEIGHT[3:9] = 0.0
OFFSET = 0.2 * rng.standard_normal(N)
Y = {
    "number": ETA + rng.standard_t(3.0, size=N) + 7.0,
    "word": np.where(ETA + rng.logistic(size=N) > 0.0, "yes", "no"),
    "class": np.digitize(ETA + rng.logistic(size=N), [-2.0, 2.0]),
    "count": rng.poisson(np.exp(0.4 * ETA)),
}
GIVEN = [
    (BayesianLinearRegression(prior_scale=1.3, noise_scale=0.8), "number"),
    (BayesianLinearRegression(prior_scale=1.3, noise_scale=0.8, engine="gkl"), "number"),
    (BayesianLinearRegression(prior_scale=[1.0, 2.0, 0.5, 1.0], noise_scale=0.8, fit_intercept=False), "number"),
    (BayesianLogisticRegression(prior_scale=1.0), "word"),
    (BayesianLogisticRegression(prior_scale=1.0, intercept_scale=2.0), "class"),
    (BayesianLogisticRegression(prior_scale=1.0, engine="laplace", standardise=False), "word"),
    (BayesianLogisticRegression(prior_scale=1.0, engine="map"), "word"),
    (BayesianProbitRegression(prior_scale=1.0, engine=engines.GaussianKL("diagonal", tol=1e-9)), "word"),
    (BayesianProbitRegression(prior_scale=1.0, engine=engines.GaussianKL("chevron", rank=2, tol=1e-9)), "word"),
    (BayesianPoissonRegression(prior_scale=1.0), "count"),
    (BayesianOrdinalRegression(prior_scale=1.0, cuts=[-1.0, 1.5]), "class"),
    (RobustRegression(prior_scale=1.0, noise_scale=1.0, engine="gkl"), "number"),
    (SparseRegression(prior_scale=1.0, noise_scale=1.0, engine="gkl"), "number"),
]
LEARNT = [
    (BayesianLinearRegression(), "number"),
    (BayesianLinearRegression(noise_scale=1.0, prior_scale="auto", standardise=False, fit_intercept=False), "number"),
    (BayesianLogisticRegression(), "word"),
    (BayesianLogisticRegression(engine="laplace", ard=True), "word"),
    (BayesianOrdinalRegression(engine="laplace"), "class"),
    (RobustRegression(engine="gkl"), "number"),
    (SparseRegression("student-t", engine="laplace"), "number"),
]


def name(case):
    return type(case[0]).__name__ + str(case[0].engine)[:12]


def same(a, b, accuracy, evidence=1e-10):
    assert b.converged_
    for attribute in ("coef_", "coef_std_", "intercept_", "prior_scale_"):
        assert getattr(b, attribute) == pytest.approx(getattr(a, attribute), rel=accuracy, abs=accuracy)
    assert b.evidence_kind_ == a.evidence_kind_
    if a.evidence_kind_ != "none":
        assert b.log_evidence_ == pytest.approx(a.log_evidence_, rel=evidence)


@pytest.mark.parametrize("case", GIVEN, ids=map(name, GIVEN))
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_fits_are_those_in_memory(case, kind):
    model, response = case
    memory = clone(model).fit(kind(X), Y[response], WEIGHT, OFFSET)
    blocks = clone(model).fit(LocalBlocks.of(kind(X), Y[response], WEIGHT, OFFSET, rows=30))
    # a gradient of at most 1e-9 in whitened coordinates, where the curvature is at least one
    same(memory, blocks, 1e-7)
    assert blocks.predict_latent(X[:5]) == pytest.approx(memory.predict_latent(X[:5]), rel=1e-6)
    if hasattr(memory, "dispersion_"):
        assert blocks.dispersion_ == pytest.approx(memory.dispersion_, rel=1e-7)


TRIALS = rng.integers(2, 9, N).astype(float)
BESIDE = {
    "trials": (BayesianBinomialRegression, rng.binomial(TRIALS.astype(int), 1.0 / (1.0 + np.exp(-0.4 * ETA))), TRIALS),
    "event": (BayesianSurvivalRegression, np.exp(0.2 * ETA) * rng.weibull(1.5, N), (rng.random(N) < 0.7).astype(float)),
    "exposure": (BayesianCountRegression, Y["count"], np.exp(OFFSET)),
}


@pytest.mark.parametrize("beside", BESIDE)
def test_trials_events_and_exposures_go_with_the_rows_of_a_block(beside):
    kind, y, column = BESIDE[beside]
    model = kind(prior_scale=1.0, hyperparameters="maximise", engine="laplace")
    memory = clone(model).fit(X, y, **{beside: column})
    if beside == "exposure":
        blocks = LocalBlocks.of(X, y, None, np.log(column), rows=30)
    else:
        blocks = LocalBlocks.of(X, np.column_stack([y, column]), rows=30)
    same(memory, clone(model).fit(blocks), 1e-6)
    lazy = [da.from_array(part, chunks=(30, *part.shape[1:])) for part in (X, np.asarray(y, float), column)]
    same(memory, clone(model).fit(lazy[0], lazy[1], **{beside: lazy[2]}), 1e-6)


@pytest.mark.parametrize("case", LEARNT, ids=map(name, LEARNT))
def test_hyperparameters_are_learnt_as_in_memory(case):
    model, response = case
    memory = clone(model).fit(X, Y[response], WEIGHT)
    blocks = clone(model).fit(LocalBlocks.of(X, Y[response], WEIGHT, rows=33))
    # the search ends at a slope of 1e-7 nat in the logarithms, and a design over them stands where it ended
    same(memory, blocks, 1e-5, evidence=1e-8)
    for key, value in memory._fits[0].values.items():
        assert blocks._fits[0].values[key] == pytest.approx(value, rel=1e-5)


STEPPED = [
    (BayesianLogisticRegression(prior_scale=1.0), "word"),
    (BayesianPoissonRegression(prior_scale=1.0), "count"),
    (RobustRegression(prior_scale=1.0, noise_scale=1.0, df=4.0), "number"),
]


def dask_threads(kind, *columns):
    rows = (30, 25, 25)
    X, *beside = columns
    return (
        da.from_array(kind(X), chunks=(rows, D), asarray=False),
        *(da.from_array(values, chunks=(rows,)) for values in beside),
    )


@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.ConvergenceWarning")
@pytest.mark.parametrize("case", STEPPED, ids=map(name, STEPPED))
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_steps_by_sums_are_those_in_memory(case, kind):
    model, response = case
    for steps in (1, 2, 3, 7):
        short = clone(model).set_params(engine=engines.GaussianKL(tol=0.0, max_iter=steps, algorithm="sums"))
        memory = clone(short).fit(kind(X), Y[response], WEIGHT, OFFSET)
        columns = (Y[response], WEIGHT, OFFSET)
        for given in (
            (LocalBlocks.of(kind(X), *columns, rows=N),),
            (LocalBlocks.of(kind(X), *columns, rows=27),),
            dask_threads(kind, X, *columns),
        ):
            blocks = clone(short).fit(*given)
            assert blocks.n_iter_ == memory.n_iter_ == steps
            for attribute in ("coef_", "coef_std_", "intercept_"):
                assert getattr(blocks, attribute) == pytest.approx(getattr(memory, attribute), rel=1e-10, abs=1e-10)
            assert blocks.log_evidence_ == pytest.approx(memory.log_evidence_, rel=1e-10)


@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.ConvergenceWarning")
@pytest.mark.parametrize("case", STEPPED, ids=map(name, STEPPED))
def test_hyperparameters_of_fits_of_few_steps_are_those_in_memory(case):
    model, response = case
    engine = engines.GaussianKL(tol=0.0, max_iter=3, algorithm="sums")
    free = clone(model).set_params(engine=engine, prior_scale="auto", hyperparameters="maximise")
    memory = clone(free).fit(X, Y[response], WEIGHT)
    for given in ((LocalBlocks.of(X, Y[response], WEIGHT, rows=27),), dask_threads(np.asarray, X, Y[response], WEIGHT)):
        blocks = clone(free).fit(*given)
        assert blocks._fits[0].n_fits == memory._fits[0].n_fits
        # rounding of 1e-15 decides whether the last step of the search is worth taking: it moves the scale by 7e-8
        assert blocks.prior_scale_ == pytest.approx(memory.prior_scale_, rel=1e-6)
        assert blocks.coef_ == pytest.approx(memory.coef_, rel=1e-6)
        assert blocks.log_evidence_ == pytest.approx(memory.log_evidence_, rel=1e-10)


@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.ConvergenceWarning")
def test_tall_rows_take_the_steps_of_blocks_unasked():
    rows, word = np.tile(X[:, :2], (2, 1)), np.tile(Y["word"], 2)
    model = BayesianLogisticRegression(prior_scale=1.0, engine=engines.GaussianKL(max_iter=2))
    memory, blocks = clone(model).fit(rows, word), clone(model).fit(LocalBlocks.of(rows, word, rows=50))
    assert blocks.coef_ == pytest.approx(memory.coef_, rel=1e-10)
    assert blocks.coef_std_ == pytest.approx(memory.coef_std_, rel=1e-10)


def test_more_columns_than_rows_in_closed_form():
    wide = rng.standard_normal((6, 9))
    model = BayesianLinearRegression(noise_scale=0.5)
    memory = clone(model).fit(wide, Y["number"][:6])
    same(memory, clone(model).fit(LocalBlocks.of(wide, Y["number"][:6], rows=2)), 1e-5)


def test_single_precision_integers_and_a_column_of_responses():
    narrow = X.astype(np.float32)
    model = BayesianLogisticRegression(prior_scale=1.0).fit(LocalBlocks.of(narrow, Y["word"][:, None], rows=30))
    assert model.coef_.dtype == np.float32
    assert model.coef_ == pytest.approx(BayesianLogisticRegression(prior_scale=1.0).fit(narrow, Y["word"]).coef_)
    whole = np.round(X).astype(int)
    model = BayesianLogisticRegression(prior_scale=1.0).fit(LocalBlocks.of(whole, Y["word"], rows=30))
    assert model.coef_ == pytest.approx(BayesianLogisticRegression(prior_scale=1.0).fit(whole, Y["word"]).coef_)


def test_offsets_of_each_class():
    offset = rng.standard_normal((N, 3))
    model = BayesianLogisticRegression(prior_scale=1.0)
    same(clone(model).fit(X, Y["class"], None, offset), model.fit(LocalBlocks.of(X, Y["class"], None, offset)), 1e-7)


def test_a_large_memory_map_is_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("latlin.distributed.opening.BLOCK_BYTES", 100)
    path = tmp_path / "rows"
    np.memmap(path, float, "w+", shape=X.shape)[:] = X
    rows = np.memmap(path, float, "r", shape=X.shape)
    model = BayesianLogisticRegression(prior_scale=1.0)
    memory, mapped = clone(model).fit(X, Y["word"]), clone(model).fit(rows, Y["word"])
    assert "rows in blocks" in mapped.posterior_.message
    same(memory, mapped, 1e-7)
    assert mapped.predict_proba(rows) == pytest.approx(mapped.predict_proba(X), abs=1e-15)


def test_predictions_of_blocks():
    blocks = LocalBlocks.of(X, offset=OFFSET, rows=11)
    model = BayesianLogisticRegression(prior_scale=1.0).fit(X, Y["class"])
    assert np.array_equal(model.predict(blocks), model.predict(X, OFFSET))
    for method in ("predict_proba", "predict_log_proba", "decision_function", "predict_latent"):
        # sums over columns may round otherwise in shorter blocks
        assert getattr(model, method)(blocks) == pytest.approx(getattr(model, method)(X, OFFSET), rel=1e-11, abs=1e-13)
    with pytest.raises(ValueError, match="return_std is for rows in memory"):
        model.predict_latent(blocks, return_std=True)
    with pytest.raises(ValueError, match="this answer is for rows in memory"):
        model.predict_interval(blocks)


def test_a_warm_start_and_a_stored_model(tmp_path):
    blocks = LocalBlocks.of(X, Y["word"], rows=30)
    model = BayesianLogisticRegression(prior_scale=1.0, warm_start=True).fit(blocks)
    steps = model.n_iter_
    assert model.fit(blocks).n_iter_ < steps
    model.save(tmp_path / "model")
    for other in (latlin.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(other.predict_proba(X), model.predict_proba(X))


def test_lost_fits_go_on_from_their_checkpoints(tmp_path):
    blocks = LocalBlocks.of(X, Y["word"], rows=30)
    whole = BayesianLogisticRegression(engine="laplace").fit(blocks)
    file = tmp_path / "state"
    kept = BayesianLogisticRegression(engine="laplace").fit(blocks, checkpoint=file)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[0] == "state.0"
    assert len(names) == kept._fits[0].n_fits
    for path in sorted(tmp_path.iterdir())[len(names) // 2 :]:
        path.unlink()
    again = BayesianLogisticRegression(engine="laplace").fit(blocks, checkpoint=file)
    for other in (kept, again):
        assert np.array_equal(other.coef_, whole.coef_)
        assert other.log_evidence_ == whole.log_evidence_
        assert other.prior_scale_ == whole.prior_scale_
    with pytest.raises(ValueError, match="belongs to another model"):
        BayesianLogisticRegression(engine="laplace").fit(LocalBlocks.of(2.0 * X, Y["word"]), checkpoint=file)


def test_gaussian_noise_takes_one_pass_beside_the_table(monkeypatch):
    passes = []
    monkeypatch.setattr(LocalBlocks, "total", _counting(LocalBlocks.total, passes))
    BayesianLinearRegression().fit(LocalBlocks.of(X, Y["number"], rows=30))
    assert len(passes) == 1


def _counting(method, passes):
    def counted(self, summand, *shared):
        passes.append(summand)
        return method(self, summand, *shared)

    return counted


def _changed(array, value, place=(17, 2)):
    copy = np.array(array, dtype=float)
    copy[place] = value
    return copy


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((_changed(X, np.nan), Y["word"]), "Input X contains NaN"),
        ((_changed(X, np.inf), Y["word"]), "Input X contains infinity"),
        ((_changed(X, 1e150), Y["word"]), "at most 1e\\+140"),
        ((sparse.csr_array(_changed(X, np.nan)), Y["word"]), "Input X contains NaN"),
        ((X, np.full(N, "yes")), "at least two classes"),
        ((X, Y["number"]), "Unknown label type"),
        ((X, np.where(Y["class"] > 1, np.nan, Y["class"])), "Input y contains NaN"),
        ((X, None), "y is missing"),
        ((X, Y["word"][:50]), "one entry for each of the 80 rows of X, got 50"),
        ((X, np.stack([Y["class"]] * 2, axis=1)), "y should be a 1d array"),
        ((X, Y["word"], np.zeros(N)), "zero everywhere"),
        ((X, Y["word"], -WEIGHT), "of at least zero"),
        ((X, Y["word"], None, np.full(N, np.inf)), "offset must be finite"),
        ((X, np.array(["a", None] * (N // 2), dtype=object)), "y has labels that cannot be put in order"),
        ((X, Y["class"], None, np.zeros((N, 2))), "offset must have one column or 3, got 2"),
    ],
)
def test_bad_rows_are_refused_by_name(columns, message):
    with pytest.raises(ValueError, match=message):
        BayesianLogisticRegression(prior_scale=1.0).fit(LocalBlocks.of(*columns, rows=30))


def test_bad_options_are_refused_by_name():
    blocks = LocalBlocks.of(X, Y["word"], rows=30)
    with pytest.raises(ValueError, match="engine 'ep' cannot be used"):
        BayesianLogisticRegression(engine="ep").fit(blocks)
    with pytest.raises(ValueError, match="engine 'map' has none"):
        BayesianLogisticRegression(engine="map").fit(blocks)
    with pytest.raises(ValueError, match="checkpoint is for rows in blocks"):
        BayesianLogisticRegression().fit(X, Y["word"], checkpoint="somewhere")
    with pytest.raises(ValueError, match="y must be numeric"):
        BayesianLinearRegression().fit(blocks)
    with pytest.raises(ValueError, match="y must hold numbers of at least zero"):
        BayesianPoissonRegression(prior_scale=1.0).fit(LocalBlocks.of(X, Y["number"] - 9.0))
    with pytest.raises(ValueError, match="y was given beside X"):
        BayesianLogisticRegression().fit(blocks, Y["word"])
