"""The target: the family is guessed where values leave no doubt, asked about where they do."""

import json

import numpy as np
import pytest

from latlin.datasets import Target, guess_family, learn_target, load_dataset

pandas = pytest.importorskip("pandas")


def series(values):
    return pandas.Series(values, name="y")


@pytest.mark.parametrize(
    ("values", "family"),
    [
        (["yes", "no", "yes"], "logistic"),
        ([True, False], "logistic"),
        ([-1, 1, 1, None], "logistic"),
        (np.arange(40), "poisson"),
        (np.arange(25, 80), "linear"),
        (np.arange(-5, 40), "linear"),
        ([0.5, 1.0, 7.25], "linear"),
    ],
)
def test_a_clear_target_is_guessed(values, family):
    assert guess_family(series(values)).family == family


@pytest.mark.parametrize(
    ("values", "choices"),
    [
        ([1, 2, 3, 4, 5], ("ordinal", "poisson", "linear")),
        ([-1, 0, 1], ("ordinal", "linear")),
        (["low", "mid", "high"], ("logistic", "ordinal")),
    ],
)
def test_an_unclear_target_is_asked_about(values, choices):
    guess = guess_family(series(values))
    assert guess.family is None
    assert guess.choices == choices


def test_real_targets():
    assert guess_family(load_dataset("breast-cancer").to_pandas()["benign"]).family == "logistic"
    assert guess_family(load_dataset("diabetes").to_pandas()["progression"]).family == "linear"
    assert guess_family(load_dataset("concrete").to_pandas()["strength_mpa"]).family == "linear"
    assert guess_family(load_dataset("doctor-visits").to_pandas()["mdvis"]).family == "poisson"
    assert guess_family(load_dataset("wine").to_pandas()["quality"]).choices[0] == "ordinal"


def test_encoded_values():
    grades = series(["low", "high", "mid"])
    target = learn_target(grades, "ordinal", ["low", "mid", "high"])
    assert target.encode(grades).tolist() == ["low", "high", "mid"]
    assert target.labels == ["low", "mid", "high"]
    assert Target.from_json(json.loads(json.dumps(target.to_json()))) == target
    ranks = learn_target(series([9, 10, 8]), "ordinal")
    assert ranks.labels == [8, 9, 10]
    np.testing.assert_array_equal(ranks.encode(series([10.0, 8.0, 9.0])), [10, 8, 9])
    np.testing.assert_array_equal(learn_target(series([2.0, 4.0]), "logistic").encode(series([4.0, 2.0])), [4, 2])
    assert learn_target(series(["b", "a"]), "logistic").encode(series(["b", "a"])).tolist() == ["b", "a"]
    assert learn_target(series([1, 2]), "linear").encode(series([1, 2])).dtype == float


def test_a_target_that_does_not_fit_its_family_is_told():
    with pytest.raises(ValueError, match="family must be one of"):
        learn_target(series([1, 2]), "cox")
    with pytest.raises(ValueError, match="say their order"):
        learn_target(series(["low", "high", "mid"]), "ordinal")
    with pytest.raises(ValueError, match="too many to be ordered"):
        learn_target(series(range(30)), "ordinal")
    with pytest.raises(ValueError, match=r"must hold whole numbers 0, 1, 2, …, got .* in . rows?, first in row"):
        learn_target(series([1.5, 2.0]), "poisson").encode(series([1.5, 2.0]))
    with pytest.raises(ValueError, match="finite numbers"):
        learn_target(series(["a", "b"]), "linear").encode(series(["a", "b"]))
    with pytest.raises(ValueError, match="has 1 missing"):
        learn_target(series([1.0, 2.0]), "linear").encode(series([1.0, None]))
    with pytest.raises(ValueError, match="not among its levels"):
        learn_target(series([1, 2, 3]), "ordinal", ["1", "2"]).encode(series([1, 2, 3]))
    with pytest.raises(ValueError, match="at least two different values"):
        guess_family(series([1, 1]))
    with pytest.raises(ValueError, match="12 different texts"):
        guess_family(series([f"t{i}" for i in range(12)]))


def test_data_sets_have_their_sizes():
    sizes = {
        "breast-cancer": (569, 30),
        "diabetes": (442, 10),
        "concrete": (1030, 8),
        "doctor-visits": (20190, 9),
        "radon": (919, 3),
    }
    for name, shape in sizes.items():
        data = load_dataset(name)
        assert data.X.shape == shape
        assert len(data.y) == shape[0]
        assert len(data.feature_names) == shape[1]
        assert np.all(np.isfinite(data.X))
    with pytest.raises(ValueError, match="name must be one of 'breast-cancer'"):
        load_dataset("iris")
