"""Factor models and mixtures of Dask collections: the digits of local blocks, and lazy answers."""

import warnings

import numpy as np
import pytest

from latlin.distributed.blocks import LocalBlocks
from latlin.factor import FactorAnalysis, GroupFactorAnalysis
from latlin.mixture import BayesianGaussianMixture
from latlin.numerics.alerts import ConvergenceWarning

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")

NAMES = list("abcdefgh")
GROUPS = [0, 1, 0, 1, 0, 1, 2, 2]
MODELS = [
    FactorAnalysis(2, max_iter=5),
    FactorAnalysis(2, method="em", max_iter=5),
    FactorAnalysis(2, method="online-em", random_state=0),
    BayesianGaussianMixture(3, max_iter=3, n_init=1, split_merge=0, random_state=0),
    BayesianGaussianMixture(3, algorithm="stochastic-natural", n_init=1, max_iter=12, random_state=0),
    GroupFactorAnalysis(3, max_iter=2, random_state=0),
]


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return rng.standard_normal((200, 3)) @ rng.standard_normal((3, 8)) + rng.standard_normal((200, 8))


def fitted(model, X, **arguments):
    with warnings.catch_warnings(), dask.config.set(scheduler="threads", num_workers=2):
        warnings.simplefilter("ignore", ConvergenceWarning)
        return type(model)(**model.get_params()).fit(X, **arguments)


def numbers(model):
    return np.atleast_2d(model.components_ if hasattr(model, "components_") else model.means_)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: repr(model)[:50])
def test_arrays_and_frames_give_the_digits_of_local_blocks(model, X):
    arguments = {"groups": GROUPS} if isinstance(model, GroupFactorAnalysis) else {}
    local = numbers(fitted(model, LocalBlocks.of(X, rows=60), **arguments))
    array = fitted(model, da.from_array(X, chunks=(60, 3)), **arguments)
    np.testing.assert_array_equal(numbers(array), local)
    parts = [pd.DataFrame(X[start : start + 60], columns=NAMES) for start in range(0, 200, 60)]
    frame = fitted(model, dd.concat([dd.from_pandas(part, npartitions=1) for part in parts]), **arguments)
    np.testing.assert_array_equal(numbers(frame), local)
    assert frame.feature_names_in_.tolist() == NAMES


def test_weights_of_a_mixture(X):
    weights = np.random.default_rng(1).random(200)
    chunked = fitted(MODELS[3], da.from_array(X, chunks=60), sample_weight=da.from_array(weights, chunks=90))
    np.testing.assert_allclose(numbers(chunked), numbers(fitted(MODELS[3], X, sample_weight=weights)), rtol=1e-10)


@pytest.mark.parametrize("kind", ["array", "frame", "mixed"])
def test_views_of_several_collections(kind, X):
    first, second = X[:, :5], X[:, 5:]
    given = {
        "array": (da.from_array(first, chunks=(60, 2)), da.from_array(second, chunks=(50, 3))),
        "frame": [
            dd.from_pandas(pd.DataFrame(part, columns=NAMES[: part.shape[1]]), npartitions=3)
            for part in (first, second)
        ],
        "mixed": (da.from_array(first, chunks=(60, 2)), second),
    }[kind]
    model = fitted(MODELS[5], dict(zip("uv", given, strict=True)))
    expected = fitted(MODELS[5], {"u": first, "v": second})
    np.testing.assert_allclose(np.abs(model.components_), np.abs(expected.components_), rtol=1e-10, atol=1e-10)
    assert model.views_.names == ("u", "v")


ANSWERS = [(0, "transform"), (0, "score_samples"), (0, "novelty"), (0, "impute"), (3, "predict")]
ANSWERS += [(3, "predict_proba"), (3, "score_samples"), (5, "transform"), (5, "score_samples")]


@pytest.mark.parametrize(("number", "question"), ANSWERS)
def test_answers_are_lazy(number, question, X):
    ask = getattr(fitted(MODELS[number], X), question)
    expected = ask(X)
    lazy = ask(da.from_array(X, chunks=(60, 3)))
    assert isinstance(lazy, da.Array)
    assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(ask(LocalBlocks.of(X, rows=60)), expected, rtol=1e-10, atol=1e-10)
    frame = dd.from_pandas(pd.DataFrame(X, columns=NAMES), npartitions=3)
    named = getattr(fitted(MODELS[number], pd.DataFrame(X, columns=NAMES)), question)
    np.testing.assert_allclose(named(frame).compute(), expected, rtol=1e-10, atol=1e-10)


def test_answers_in_blocks_take_no_options(X):
    with pytest.raises(ValueError, match="return_cov is for rows in memory"):
        fitted(MODELS[0], X).transform(da.from_array(X, chunks=60), return_cov=True)


def test_the_score_of_a_collection(X):
    model = fitted(MODELS[3], X)
    assert model.score(da.from_array(X, chunks=60)) == pytest.approx(model.score(X), rel=1e-12)
