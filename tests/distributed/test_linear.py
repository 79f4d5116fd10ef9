"""Linear models on Dask: the digits of local blocks cut alike, lazy predictions, names of columns."""

import numpy as np
import pytest
from scipy import sparse

from latlin.distributed.blocks import LocalBlocks
from latlin.linear import BayesianLinearRegression, BayesianLogisticRegression, BayesianPoissonRegression

da = pytest.importorskip("dask.array")

N, D, ROWS = 70, 3, 30
rng = np.random.default_rng(5)
X = rng.standard_normal((N, D)) + np.arange(D)
LABELS = np.where(X @ [1.0, -1.0, 0.5] + rng.logistic(size=N) > 0.0, "yes", "no")
COUNTS = rng.poisson(np.exp(0.3 * X[:, 0]))
WEIGHT, OFFSET = rng.random(N) + 0.5, 0.1 * rng.standard_normal(N)


def cut(values):
    return da.from_array(values, chunks=(ROWS, *values.shape[1:]))


def compressed(rows):
    return sparse.csr_array(rows)


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (BayesianLogisticRegression(prior_scale=1.0), LABELS),
        (BayesianLogisticRegression(prior_scale=1.0, engine="laplace"), LABELS),
        (BayesianPoissonRegression(prior_scale=1.0, engine="map"), COUNTS),
        (BayesianLinearRegression(), COUNTS),
    ],
    ids=["gkl", "laplace", "map", "exact"],
)
@pytest.mark.parametrize("kind", [np.asarray, compressed], ids=["dense", "sparse"])
def test_dask_gives_the_digits_of_local_blocks(model, y, kind):
    model.fit(cut(X).map_blocks(kind), cut(y), cut(WEIGHT), cut(OFFSET))
    coef, evidence = model.coef_, model.log_evidence_
    model.fit(LocalBlocks.of(kind(X), y, WEIGHT, OFFSET, rows=ROWS))
    assert np.array_equal(model.coef_, coef)
    assert np.array_equal(model.log_evidence_, evidence, equal_nan=True)


def test_predictions_are_lazy():
    model = BayesianLogisticRegression(prior_scale=1.0).fit(X, LABELS)
    rows = da.from_array(X, chunks=(25, 2))
    assert np.array_equal(model.predict(rows).compute(), model.predict(X))
    assert np.array_equal(model.predict(rows, cut(OFFSET)).compute(), model.predict(X, OFFSET))
    for method in ("predict_proba", "decision_function"):
        ask = getattr(model, method)
        assert isinstance(ask(rows), da.Array)
        assert ask(rows).compute() == pytest.approx(ask(X), rel=1e-11, abs=1e-13)
        assert ask(rows, cut(OFFSET)).compute() == pytest.approx(ask(X, OFFSET), rel=1e-11, abs=1e-13)


def test_names_of_columns():
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=LABELS)
    parts = dd.from_pandas(frame, npartitions=3)
    model = BayesianLogisticRegression(prior_scale=1.0).fit(parts[["a", "b", "c"]], parts["y"])
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    memory = BayesianLogisticRegression(prior_scale=1.0).fit(frame[["a", "b", "c"]], LABELS)
    assert model.coef_ == pytest.approx(memory.coef_, abs=1e-7)
    chances = model.predict_proba(parts[["a", "b", "c"]]).compute()
    assert chances == pytest.approx(memory.predict_proba(frame[["a", "b", "c"]]), abs=1e-7)
    with pytest.raises(ValueError, match="offset is for arrays"):
        model.predict(parts[["a", "b", "c"]], OFFSET)


def test_blocks_of_weight_zero_and_labels_that_some_blocks_lack():
    order = np.argsort(LABELS, kind="stable")
    weight = np.where(np.arange(N) < ROWS, 0.0, 1.0)
    dask = BayesianLogisticRegression(prior_scale=1.0).fit(cut(X[order]), cut(LABELS[order]), cut(weight))
    memory = BayesianLogisticRegression(prior_scale=1.0).fit(X[order], LABELS[order], weight)
    assert dask.coef_ == pytest.approx(memory.coef_, abs=1e-7)
    assert dask.log_evidence_ == pytest.approx(memory.log_evidence_, rel=1e-10)


@pytest.mark.parametrize("kind", ["int8", "bool", "object", "category", "Int64", "boolean", "string"])
def test_classes_are_those_of_memory(kind):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    labels = LABELS if kind in ("object", "category", "string") else LABELS == "yes"
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=pd.Series(labels).astype(kind))
    parts = dd.from_pandas(frame, npartitions=3)
    dask, memory = (
        BayesianLogisticRegression(prior_scale=1.0, engine="map").fit(rows[["a", "b", "c"]], rows["y"])
        for rows in (parts, frame)
    )
    assert dask.classes_.dtype == memory.classes_.dtype
    assert dask.classes_.tolist() == memory.classes_.tolist()
    assert [type(label) for label in dask.classes_] == [type(label) for label in memory.classes_]


def test_labels_that_are_missing_are_refused_as_in_memory():
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    labels = pd.Series((LABELS == "yes").astype(int)).astype("Int64").mask(np.arange(N) == 40)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=labels)
    for rows in (frame, dd.from_pandas(frame, npartitions=3)):
        with pytest.raises(ValueError, match="Input y contains NaN"):
            BayesianLogisticRegression(prior_scale=1.0).fit(rows[["a", "b", "c"]], rows["y"])


@pytest.mark.parametrize(("label", "told"), [(0, "0"), (np.str_("no"), "'no'"), (2.0, "2.0"), (True, "True")])
def test_one_class_is_named_plainly(label, told):
    y = np.full(N, label)
    for rows, labels in ((X, y), (cut(X), cut(y))):
        with pytest.raises(ValueError, match=f"got one class: {told}$"):
            BayesianLogisticRegression().fit(rows, labels)
