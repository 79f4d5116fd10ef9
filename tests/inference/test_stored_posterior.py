"""Posteriors on disk: the same numbers after loading, and files that are not ours are refused in words."""

import dataclasses
import tracemalloc

import numpy as np
import pytest

import latlin
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials
from latlin.inference.posterior import Posterior
from latlin.numerics.archive import read_archive, write_archive


def a_model(n, dim):
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n, dim))
    return LatentLinearModel([GaussianFactor(cov=2.0, dim=dim), SiteFactor(X, potentials.Logit(X[:, 0] > 0.3))])


TALL, WIDE = a_model(12, 3), a_model(3, 6)
ENGINES = [
    "map",
    "laplace",
    "mean-field",
    "lvb",
    engines.ExpectationPropagation(power=0.5),
    "gkl",
    engines.GaussianKL(covariance="diagonal"),
    engines.GaussianKL(covariance="banded", bandwidth=1),
    engines.GaussianKL(covariance="chevron", rank=1),
    engines.GaussianKL(covariance="low-rank", rank=1),
    engines.GaussianKL(covariance="subspace", rank=2),
    "ai-kl",
]


def saved(posterior, folder):
    posterior.save(folder / "posterior.npz")
    return latlin.load(folder / "posterior.npz")


@pytest.mark.parametrize("model", [TALL, WIDE], ids=["tall", "wide"])
@pytest.mark.parametrize("engine", ENGINES, ids=repr)
def test_all_but_the_model_comes_back(model, engine, tmp_path):
    before = infer(model, engine)
    after = saved(before, tmp_path)
    for field in dataclasses.fields(Posterior):
        if field.name not in ("model", "density", "trace", "sites"):
            np.testing.assert_equal(getattr(after, field.name), getattr(before, field.name))  # NaN is NaN
    np.testing.assert_array_equal(after.trace, before.trace)
    assert (after.sites is None) == (before.sites is None)
    if before.sites is not None:
        np.testing.assert_array_equal(after.sites, before.sites)
    np.testing.assert_array_equal(after.mean, before.mean)
    np.testing.assert_array_equal(after.variance, before.variance)
    H = np.random.default_rng(5).standard_normal((4, model.dim))
    np.testing.assert_array_equal(after.project(H).mean, before.project(H).mean)
    np.testing.assert_array_equal(after.project(H).variance, before.project(H).variance)
    if before.engine != "map":
        np.testing.assert_array_equal(after.covariance(), before.covariance())
        np.testing.assert_array_equal(after.sample(3, random_state=0), before.sample(3, random_state=0))
        np.testing.assert_array_equal(after.logpdf(H), before.logpdf(H))


@pytest.mark.parametrize(
    "potential", [potentials.Laplace([1.0, -1.0, 0.3], 0.5), potentials.Probit([1, 0, 1])], ids=repr
)
def test_a_free_form_density_answers_after_loading(potential, tmp_path):
    cov = np.array([[1.0, 0.4, 0.1], [0.4, 2.0, 0.3], [0.1, 0.3, 1.5]])
    before = infer(LatentLinearModel([GaussianFactor(cov=cov), SiteFactor(None, potential)]), "mean-field")
    after = saved(before, tmp_path)
    w = np.random.default_rng(0).standard_normal((5, 3))
    np.testing.assert_array_equal(after.logpdf(w), before.logpdf(w))
    np.testing.assert_array_equal(after.sample(4, random_state=0), before.sample(4, random_state=0))


def test_a_function_of_the_user_is_not_stored_and_that_is_said(tmp_path):
    own = potentials.Custom(lambda x: -np.logaddexp(x, -x), log_concave=True)
    model = LatentLinearModel([GaussianFactor(dim=2), SiteFactor(None, own)])
    after = saved(infer(model, "mean-field"), tmp_path)
    assert after.mean.shape == (2,)
    with pytest.raises(ValueError, match="a function of yours and was not stored"):
        after.logpdf(np.zeros(2))


def test_the_model_is_given_again_where_it_is_needed(tmp_path):
    before = infer(TALL, "gkl")
    after = saved(before, tmp_path)
    assert repr(after.model) == "StoredModel(dim=3)"
    for question in (after.diagnose, after.kl_bound):
        with pytest.raises(ValueError, match="loaded from a file"):
            question()
    again = dataclasses.replace(after, model=TALL)
    assert again.kl_bound() == before.kl_bound()
    assert again.diagnose(400, random_state=0).k_hat == before.diagnose(400, random_state=0).k_hat


def test_a_loaded_posterior_is_a_start(tmp_path):
    before = infer(TALL, "gkl")
    after = saved(before, tmp_path)
    with pytest.raises(ValueError, match="loaded from a file"):
        infer(TALL, "gkl", start=after)
    warm, expected = (infer(TALL, "gkl", start=dataclasses.replace(each, model=TALL)) for each in (after, before))
    assert warm.n_iter == expected.n_iter
    np.testing.assert_array_equal(warm.mean, expected.mean)


def forged(path, change):
    """The file again, changed and with right digests."""
    kind, header, arrays = read_archive(path)
    change(header)
    write_archive(path, kind, header, arrays)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda header: header["options"].update(dim=4), r"has dimension \(3,\), the model 4"),
        (lambda header: header["options"].update(dim="3"), "the model 3"),
        (lambda header: header["attributes"].pop("trace"), "a Posterior has attributes"),
        (lambda header: header["attributes"].update(model=None), "a Posterior has attributes"),
        (lambda header: header["attributes"]["density"].update({"class": "system"}), "which latlin does not store"),
        (lambda header: header.pop("attributes"), "not a readable latlin archive"),
    ],
)
def test_what_is_not_ours_is_refused(change, told, tmp_path):
    path = tmp_path / "posterior.npz"
    infer(TALL, "laplace").save(path)
    forged(path, change)
    with pytest.raises(ValueError, match=told):
        latlin.load(path)


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "posterior.npz"
    write_archive(path, "os.system", {"options": {}, "attributes": {}, "card": None}, {})
    with pytest.raises(ValueError, match="not a saved estimator or posterior"):
        latlin.load(path)
    with pytest.raises(FileNotFoundError):
        latlin.load(tmp_path / "nothing.npz")


def test_a_covariance_of_another_length_is_refused_before_it_is_used(tmp_path):
    path = tmp_path / "posterior.npz"
    infer(LatentLinearModel([GaussianFactor(cov=np.eye(200) + 0.3)]), "exact").save(path)
    kind, header, arrays = read_archive(path)
    flat = {name: array.reshape(-1) if array.ndim == 2 else array for name, array in arrays.items()}
    write_archive(path, kind, header, flat)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"factor must be a square matrix, got an array of shape \(40000,\)"):
            latlin.load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * path.stat().st_size


@pytest.mark.filterwarnings("ignore::latlin.ConvergenceWarning")
@pytest.mark.parametrize("engine", [*ENGINES[1:], "t-kl"], ids=str)
def test_the_density_vanishes_at_infinity(engine):
    coordinates = LatentLinearModel([GaussianFactor(cov=2.0, dim=3), SiteFactor(None, potentials.Logit([1, 0, 1]))])
    post = infer(coordinates if engine in ("mean-field", "ai-kl") else TALL, engine)
    far = np.array([[np.inf] * 3, [0.0, -np.inf, 0.0], post.mean, [np.nan, np.inf, 0.0], [1e300, -1e300, 1e300]])
    found = post.logpdf(far)
    assert found[0] == found[1] == -np.inf
    assert found[2] == pytest.approx(post.logpdf(post.mean))
    assert np.isnan(found[3])
    assert found[4] == -np.inf or engine == "t-kl"
    assert post.logpdf(far[0]) == -np.inf


def test_a_heavy_tail_is_a_number_far_out():
    heavy = SiteFactor(None, potentials.StudentT(3.0, np.zeros(3), 0.3))
    post = infer(LatentLinearModel([*TALL.sites, heavy]), engines.EllipticalKL())
    # a Student t falls by (ν + D) log 10 per factor of ten
    falls = np.diff(post.logpdf(10.0 ** np.array([[90.0], [140.0], [190.0], [300.0]]) * [1.0, -1.0, 0.5]))
    np.testing.assert_allclose(falls / np.log(10.0) / [50.0, 50.0, 110.0], -(post.density.df + 3), rtol=1e-9)
