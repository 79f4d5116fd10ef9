"""Sizes of approximations beside their names: n_inducing and n_neighbours of the estimators."""

import numpy as np
import pytest

import latlin
from latlin.gp import GaussianProcessClassifier, GaussianProcessRegressor, Inducing, Vecchia

RNG = np.random.default_rng(3)
X = RNG.uniform(-2, 2, (80, 2))
y = np.sin(2 * X[:, 0]) + 0.1 * RNG.standard_normal(80)


def fitted(**options):
    return GaussianProcessRegressor(optimizer=None, random_state=0, **options).fit(X, y)


@pytest.mark.parametrize(
    ("option", "approximation"),
    [({"n_inducing": 15}, Inducing(n_inducing=15)), ({"n_neighbours": 6}, Vecchia(n_neighbours=6))],
)
@pytest.mark.parametrize("named", [False, True])
def test_a_size_is_that_of_the_object(option, approximation, named):
    by_size = fitted(approximation=approximation.name if named else "auto", **option)
    by_object = fitted(approximation=approximation)
    assert repr(by_size.approximation_) == repr(approximation)
    assert by_size.log_evidence_ == by_object.log_evidence_
    assert ("is given" in by_size.message_) != named


def test_inducing_inputs_survive_a_file(tmp_path):
    model = fitted(n_inducing=15)
    assert model.inducing_inputs_.shape == (15, 2)
    model.save(tmp_path / "process.latlin")
    np.testing.assert_array_equal(latlin.load(tmp_path / "process.latlin").inducing_inputs_, model.inducing_inputs_)


def test_classes_share_inducing_inputs_or_have_their_own():
    labels = np.digitize(y, [-0.5, 0.5])
    options = {"kernel": None, "optimizer": None, "n_inducing": 10, "random_state": 0}
    together = GaussianProcessClassifier(**options).fit(X, labels)
    assert together.inducing_inputs_.shape == (10, 2)
    apart = GaussianProcessClassifier(multi_class="one-vs-rest", **options).fit(X, labels)
    assert [inputs.shape for inputs in apart.inducing_inputs_] == [(10, 2)] * 3


def test_other_approximations_have_no_inducing_inputs():
    with pytest.raises(AttributeError, match="approximation 'inducing' only"):
        _ = fitted().inducing_inputs_


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_inducing": 3, "n_neighbours": 2}, "n_inducing and n_neighbours are sizes of different approximations"),
        ({"n_inducing": 3, "approximation": "vecchia"}, "n_inducing is for approximation 'inducing', got .*'vecchia'"),
        ({"n_neighbours": 3, "approximation": Vecchia()}, "give it to Vecchia instead"),
        ({"n_inducing": 0}, "n_inducing must be an integer of at least 1, got 0"),
        ({"n_neighbours": "a"}, "n_neighbours must be an integer of at least 1, got 'a'"),
    ],
)
def test_sizes_that_cannot_be_meant(options, words):
    with pytest.raises(ValueError, match=words):
        fitted(**options)
