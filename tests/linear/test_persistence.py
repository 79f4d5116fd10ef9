"""Saved models: the same answers to the last digit, and no way for a file to do harm."""

import errno
import json
import pickle
import zipfile

import numpy as np
import pandas as pd
import pytest

import latlin
from latlin import engines
from latlin.factor import FactorAnalysis
from latlin.linear import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianOrdinalRegression,
    BayesianPoissonRegression,
    BayesianProbitRegression,
    RobustRegression,
    SparseRegression,
)
from latlin.numerics.archive import read_archive, write_archive
from linear_data import responses

X, Y = responses()
FRAME = pd.DataFrame(X, columns=["age", "income", "<script>", "weight"])
FIXED = {"prior_scale": 1.0}
KL = engines.GaussianKL
MODELS = [
    (BayesianLinearRegression(), "numbers"),
    (BayesianLinearRegression(prior_scale=[1.0, 2.0, 3.0, 4.0], random_state=3), "numbers"),
    (BayesianLogisticRegression(), "labels"),
    (BayesianLogisticRegression(engine="laplace"), "three"),
    (BayesianProbitRegression(engine="ep", **FIXED), "labels"),
    (BayesianPoissonRegression(), "counts"),
    (BayesianOrdinalRegression(order=[0, 1, 2]), "three"),
    (RobustRegression(engine="gkl", df="auto"), "outliers"),
    (SparseRegression("student-t", engine="gkl"), "numbers"),
    (BayesianLogisticRegression(engine="map", **FIXED), "labels"),
    (BayesianLogisticRegression(engine="ai-kl", **FIXED), "labels"),
    (BayesianLogisticRegression(engine=engines.MeanField(), **FIXED), "labels"),
    (BayesianLogisticRegression(engine=KL(covariance="chevron", rank=2), **FIXED), "labels"),
    (BayesianLogisticRegression(engine=KL(covariance="chevron", rank=2, order=np.array([1, 0])), **FIXED), "labels"),
    (BayesianLogisticRegression(engine=KL(covariance="low-rank", rank=2), **FIXED), "labels"),
    (BayesianLogisticRegression(engine=KL(covariance="subspace", rank=2), **FIXED), "labels"),
    (BayesianLogisticRegression(engine=KL(covariance="banded", bandwidth=1), **FIXED), "labels"),
]


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.latlin"
    BayesianLogisticRegression(engine="laplace", **FIXED).fit(X, Y["labels"]).save(path)
    return path


@pytest.mark.parametrize(("model", "response"), MODELS, ids=lambda value: str(value)[:60])
def test_what_was_saved_answers_the_same(model, response, tmp_path):
    model.fit(FRAME, Y[response])
    model.save(tmp_path / "model.latlin")
    loaded = latlin.load(tmp_path / "model.latlin")
    assert type(loaded) is type(model)
    assert str(loaded.get_params()) == str(model.get_params())
    assert loaded.feature_names_in_.tolist() == list(FRAME.columns)
    ask = [
        "predict",
        "predict_interval",
        "predict_latent",
        *(["predict_proba"] if hasattr(model, "predict_proba") else []),
    ]
    for name in ask:
        np.testing.assert_array_equal(getattr(loaded, name)(FRAME), getattr(model, name)(FRAME))
    for name in ("coef_", "intercept_", "coef_std_", "prior_scale_", "log_evidence_", "n_iter_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
    assert repr(loaded.summary()) == repr(model.summary())
    np.testing.assert_array_equal(loaded.sample_y(FRAME, 3, random_state=0), model.sample_y(FRAME, 3, random_state=0))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(FRAME), model.predict(FRAME))


def test_what_was_loaded_has_no_training_data_and_says_so(saved):
    loaded = latlin.load(saved)
    with pytest.raises(ValueError, match="no training data"):
        loaded.posterior_.diagnose(random_state=0)
    assert "StoredModel(dim=5)" in repr(loaded.posterior_.model)
    loaded.save(saved)
    assert latlin.load(saved).predict(X).tolist() == loaded.predict(X).tolist()


def test_a_loaded_stream_goes_on(tmp_path):
    model = BayesianLogisticRegression(**FIXED).partial_fit(X[:30], Y["labels"][:30])
    model.save(tmp_path / "model.latlin")
    loaded = latlin.load(tmp_path / "model.latlin").partial_fit(X[30:], Y["labels"][30:])
    np.testing.assert_array_equal(loaded.coef_, model.partial_fit(X[30:], Y["labels"][30:]).coef_)


def test_other_estimators_are_found_by_their_kind(tmp_path):
    model = FactorAnalysis(2).fit(X)
    model.save(tmp_path / "factor.latlin")
    np.testing.assert_array_equal(latlin.load(tmp_path / "factor.latlin").components_, model.components_)


def test_a_truncated_file_is_refused(saved):
    whole = saved.read_bytes()
    for share in (0.2, 0.6, 0.99):
        saved.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(ValueError, match="not a readable latlin archive"):
            latlin.load(saved)
    with pytest.raises(FileNotFoundError):
        latlin.load(saved.parent / "nothing.latlin")


def edited(path, change):
    """The file again, changed and with right digests."""
    kind, header, arrays = read_archive(path)
    found = change(header, arrays)
    write_archive(path, found if isinstance(found, str) else kind, header, arrays)


def flipped(path, name):
    """The file again, the last byte of one member changed."""
    with zipfile.ZipFile(path) as file:
        members = {each: bytearray(file.read(each)) for each in file.namelist()}
    members[name][-1] ^= 1
    with zipfile.ZipFile(path, "w") as file:
        for each, content in members.items():
            file.writestr(each, bytes(content))


@pytest.mark.parametrize("member", ["_design.centre.npy", "header.npy", "digest.npy"])
def test_an_edited_file_is_refused(saved, member):
    flipped(saved, member)
    with pytest.raises(ValueError, match=r"damaged or changed|not a readable"):
        latlin.load(saved)


def test_a_newer_file_asks_for_a_newer_latlin(saved, monkeypatch):
    kind, header, arrays = read_archive(saved)
    monkeypatch.setattr("latlin.numerics.archive._verify", lambda *_: None)
    monkeypatch.setattr("latlin.numerics.archive.FORMAT", 99)
    write_archive(saved, kind, header, arrays)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"format 99.*upgrade"):
        latlin.load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header, arrays: "os.system", "not a saved estimator"),
        (lambda header, arrays: "latlin.linear.Regression", "not a readable"),
        (lambda header, arrays: "latlin.mixture.BayesianGaussianMixture", "not a readable"),
        (lambda header, arrays: fit(header)["density"].update({"class": "subprocess.Popen"}), "which latlin does not"),
        (lambda header, arrays: fit(header)["density"]["parts"].update(evil=1), "Gaussian has parts"),
        (lambda header, arrays: fit(header)["density"]["parts"].pop("mean"), "Gaussian has parts"),
        (lambda header, arrays: header["options"].update(engine={"class": "os.system", "parts": {}}), "does not store"),
        (lambda header, arrays: header["options"].update(nonsense=1), "not a readable"),
        (lambda header, arrays: header["attributes"].pop("_fits"), "has attributes"),
        (lambda header, arrays: header["attributes"].update(predict=1), "has attributes"),
        (lambda header, arrays: header["attributes"].update(n_features_in_=10**6), "n_features_in_ must be"),
        (lambda header, arrays: arrays.pop("_design.centre"), "not a stored value"),
        (lambda header, arrays: arrays.update({"_design.centre": np.zeros(2)}), "not over the 3 coefficients"),
    ],
)
def test_a_file_forged_with_right_digests_makes_nothing_unknown(saved, change, message):
    edited(saved, change)
    with pytest.raises(ValueError, match=message):
        latlin.load(saved)


def fit(header):
    """The stored parts of the first posterior."""
    return header["attributes"]["_fits"]["list"][0]["parts"]["posterior"]["parts"]


def test_a_pickle_inside_is_never_run(saved):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("a file ran code",))

    with zipfile.ZipFile(saved, "a") as archive, archive.open("trap.npy", "w") as file:
        np.lib.format.write_array(file, np.array([Trap()], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="not a readable latlin archive"):
        latlin.load(saved)


def test_a_full_disk_leaves_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        BayesianLinearRegression().fit(X, Y["numbers"]).save(saved)
    monkeypatch.undo()
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_the_file_is_plain(saved):
    with zipfile.ZipFile(saved) as archive:
        header = json.loads(np.lib.format.read_array(archive.open("header.npy")).tobytes())
    assert header["kind"] == "latlin.linear.BayesianLogisticRegression"
    assert header["format"] == 2


def test_what_cannot_be_saved_says_so(tmp_path):
    model = BayesianLinearRegression(engine=engines.Laplace()).fit(X, Y["numbers"])
    model.engine = lambda: None
    with pytest.raises(ValueError, match=r"options.engine cannot be saved"):
        model.save(tmp_path / "model.latlin")
    assert not list(tmp_path.iterdir())
