"""Group factor analysis from outside: what it finds, predicts, fills, refuses and keeps."""

import numpy as np
import pytest
from sklearn.linear_model import RidgeCV

import latlin
from latlin.factor import GroupFactorAnalysis

# factors × four views: all, three pairs, two private
PATTERN = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 0], [0, 0, 0, 1]])


def four_views(seed, n=200, size=30, noise=1.0, pattern=PATTERN):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, len(pattern)))
    views = {}
    for m, name in enumerate("abcd"):
        w = rng.standard_normal((len(pattern), size)) * pattern[:, m, None]
        views[name] = z @ w + noise * rng.standard_normal((n, size))
    return views


def found(model):
    return sorted(model.factor_activity_.active.T.astype(int).tolist())


@pytest.mark.parametrize(("rank", "seeds"), [("full", 10), (2, 4)])
def test_the_pattern_of_four_views_is_recovered(rank, seeds):
    hits = 0
    for seed in range(seeds):
        model = GroupFactorAnalysis(2 * len(PATTERN), rank=rank, random_state=seed).fit(four_views(seed))
        assert np.diff(model.trace_).min() >= -1e-10 * abs(model.lower_bound_)
        hits += found(model) == sorted(PATTERN.tolist())
    assert hits >= 0.9 * seeds
    assert model.factor_activity_.n_shared == 4
    assert model.factor_activity_.n_private == 2


def test_the_first_sample_of_a_view_from_the_others_beats_ridge():
    """Fewer samples than features: against ridge with its penalty chosen by leave-one-out."""
    ours, theirs = [], []
    for seed in range(3):
        data = four_views(seed, n=340, size=100)
        train, test = ({k: v[s] for k, v in data.items()} for s in (slice(0, 40), slice(40, None)))
        model = GroupFactorAnalysis(8, random_state=0).fit(train)
        sources = {k: test[k] for k in "abc"}
        ours.append(np.mean((model.predict_view("d", sources) - test["d"]) ** 2))
        ridge = RidgeCV(np.logspace(-2, 5, 30)).fit(np.hstack([train[k] for k in "abc"]), train["d"])
        theirs.append(np.mean((ridge.predict(np.hstack(list(sources.values()))) - test["d"]) ** 2))
    assert np.all(np.array(ours) < np.array(theirs))


def test_missing_entries_cost_little():
    for seed in range(2):
        data = four_views(seed, n=500)
        train, test = ({k: v[s] for k, v in data.items()} for s in (slice(0, 300), slice(300, None)))
        rng = np.random.default_rng(seed)
        holes = {k: np.where(rng.random(v.shape) < 0.2, np.nan, v) for k, v in train.items()}
        errors = []
        for known in (train, holes):
            model = GroupFactorAnalysis(8, random_state=0).fit(known)
            predicted = model.predict_view("d", {k: test[k] for k in "abc"})
            errors.append(np.mean((predicted - test["d"]) ** 2))
            assert found(model) == sorted(PATTERN.tolist())
        assert errors[1] < 1.1 * errors[0]
        # `model` saw the holes: what it puts there has the noise's error, and says so
        filled, std = model.impute(holes, return_std=True)
        gap = np.isnan(holes["a"])
        z = (filled["a"] - train["a"])[gap] / std["a"][gap]
        assert 0.9 < np.mean(z**2) < 1.15
        np.testing.assert_array_equal(filled["a"][~gap], train["a"][~gap])
        assert np.all(std["a"][~gap] == 0.0)


def test_a_whole_missing_view_is_cheap_and_harmless():
    data = four_views(4)
    data["b"][:60] = np.nan
    model = GroupFactorAnalysis(9, random_state=0).fit(data)
    assert found(model) == sorted(PATTERN.tolist())
    assert len(model.posterior_.basis) == 4
    mean, std = model.predict_view("b", {k: data[k][:60] for k in "acd"}, return_std=True)
    # the target's own entries are not looked at
    whole = four_views(4)
    same = model.predict_view("b", {k: whole[k][:60] for k in "abcd"})
    np.testing.assert_array_equal(same, model.predict_view("b", {k: whole[k][:60] for k in "acd"}))
    z = (mean - four_views(4)["b"][:60]) / std
    assert 0.8 < np.mean(z**2) < 1.25


def test_forms_of_input_agree():
    data = four_views(2, n=80, size=12)
    by_dict = GroupFactorAnalysis(8, random_state=0).fit(data)
    by_list = GroupFactorAnalysis(8, random_state=0).fit(list(data.values()))
    order = np.arange(48).reshape(4, 12).T.ravel()
    matrix, groups = np.hstack(list(data.values()))[:, order], np.repeat(list("abcd"), 12)[order]
    by_matrix = GroupFactorAnalysis(8, random_state=0).fit(matrix, groups=groups)
    assert by_dict.lower_bound_ == by_list.lower_bound_
    assert by_matrix.lower_bound_ == by_dict.lower_bound_
    np.testing.assert_array_equal(by_matrix.components_, by_dict.components_[:, order])
    np.testing.assert_allclose(by_matrix.mean_, matrix.mean(axis=0))
    subset = by_list.transform([None, data["b"], None, data["d"]])
    np.testing.assert_allclose(subset, by_dict.transform({"d": data["d"], "b": data["b"]}))
    np.testing.assert_allclose(by_dict.transform(data), by_dict.latents_, atol=2e-2)
    for model, form in ((by_dict, dict), (by_list, list), (by_matrix, np.ndarray)):
        assert isinstance(model.sample(3, random_state=0), form)
        assert isinstance(model.inverse_transform(np.zeros((2, model.n_factors_))), form)
        assert isinstance(model.loadings_, form)


def test_scales_change_units_only():
    data = four_views(3, n=100, size=10)
    plain = GroupFactorAnalysis(8, random_state=0).fit(data)
    factor = {"a": 10.0, "b": 0.01, "c": 1.0, "d": 1000.0}
    other = GroupFactorAnalysis(8, random_state=0).fit({k: factor[k] * v + 5.0 for k, v in data.items()})
    shift = sum(1000 * np.log(f) for f in factor.values())
    assert other.lower_bound_ == pytest.approx(plain.lower_bound_ - shift, rel=1e-8)
    np.testing.assert_allclose(other.loadings_["d"], 1000.0 * plain.loadings_["d"], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(other.explained_variance_, plain.explained_variance_, atol=1e-6)


def test_shares_add_up_and_noise_is_found():
    data = four_views(5, n=1000, noise=0.7)
    model = GroupFactorAnalysis(9, noise="feature", random_state=0).fit(data)
    np.testing.assert_allclose(model.noise_variance_, 0.49, atol=0.12)
    explained = model.explained_variance_.sum(axis=1)
    rest = np.array([0.49 / v.var(axis=0).mean() for v in data.values()])
    np.testing.assert_allclose(explained + rest, 1.0, atol=0.03)
    draws = np.hstack(list(model.sample(50_000, random_state=0).values()))
    covariance = np.cov(np.hstack(list(data.values())).T)
    assert np.abs(np.cov(draws.T) - covariance).max() < 8.0 * np.diag(covariance).max() / np.sqrt(1000)
    expected = model.score(data)
    assert expected == pytest.approx(np.mean(model.score_samples(data)))
    # −½ E[log det 2πeC] of the truth, within sampling error of 1000 rows in 120 dimensions
    assert expected == pytest.approx(-0.5 * np.linalg.slogdet(2 * np.pi * np.e * np.cov(draws.T))[1], rel=0.01)


def test_more_starts_never_lower_the_bound():
    data = four_views(6, n=60, size=8)
    one = GroupFactorAnalysis(6, random_state=3).fit(data)
    several = GroupFactorAnalysis(6, n_init=3, random_state=3).fit(data)
    assert several.lower_bound_ >= one.lower_bound_


@pytest.mark.parametrize("missing", [False, True])
def test_saved_and_loaded_answers_are_the_same(tmp_path, missing):
    data = four_views(7, n=60, size=8)
    if missing:
        data["b"][:5, 3] = np.nan
    model = GroupFactorAnalysis(5, noise="feature", random_state=0).fit(data)
    model.save(tmp_path / "model.npz")
    again = latlin.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.transform({"a": data["a"]}), model.transform({"a": data["a"]}))
    assert str(again.factor_activity_) == str(model.factor_activity_)
    assert again.lower_bound_ == model.lower_bound_
    np.testing.assert_array_equal(again.components_, model.components_)
    (tmp_path / "other.npz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a readable"):
        GroupFactorAnalysis.load(tmp_path / "other.npz")


def test_the_heat_map_shows_every_view():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    model = GroupFactorAnalysis(8, random_state=0).fit(four_views(0, n=100, size=10))
    axes = model.plot_activity(Figure().subplots())
    assert [text.get_text() for text in axes.get_yticklabels()] == list("abcd")
    assert axes.images[0].get_array().shape == model.explained_variance_.shape


def test_bad_input_is_named():
    data = four_views(0, n=20, size=4)
    fit = GroupFactorAnalysis(2).fit
    with pytest.raises(ValueError, match=r"same number of rows: 'a' has 19, 'b' has 20"):
        fit({"a": data["a"][1:], "b": data["b"]})
    empty = data["b"].copy()
    empty[:, 2] = np.nan
    with pytest.raises(ValueError, match=r"no observed entry in column\(s\) \[2\] of view 'b'"):
        fit({"a": data["a"], "b": empty})
    flat = data["b"].copy()
    flat[:, 1] = 3.0
    with pytest.raises(ValueError, match=r"constant in column\(s\) \[1\] of view 'b'"):
        fit({"a": data["a"], "b": flat})
    with pytest.raises(ValueError, match=r"constant in column\(s\) \[5\]"):
        fit(np.hstack([data["a"], flat]), groups=list("aaaabbbb"))
    with pytest.raises(ValueError, match=r"one label a column \(4\), got 3"):
        fit(data["a"], groups=list("aab"))
    with pytest.raises(ValueError, match="already several views"):
        fit(data, groups=list("aab"))
    with pytest.raises(ValueError, match="at least one view"):
        fit({})
    for option, value in (("noise", "none"), ("scale", 2), ("rank", "low"), ("n_components", 0), ("n_init", 1.5)):
        with pytest.raises(ValueError, match=option):
            GroupFactorAnalysis(**{option: value}).fit(data)
    with pytest.raises(ValueError, match="noise_prior"):
        GroupFactorAnalysis(noise_prior=(1.0, 0.0)).fit(data)
    model = fit(data)
    with pytest.raises(ValueError, match="unknown view 'e'"):
        model.predict_view("e", data)
    with pytest.raises(ValueError, match="view 'a' must have 4 columns, got 3"):
        model.transform({"a": data["a"][:, :3]})
    with pytest.raises(ValueError, match="dict or list of views"):
        model.transform(data["a"])


@pytest.mark.parametrize("prior", [(1e-14, 1e-14), (1.0, 0.1)])
@pytest.mark.parametrize(("levels", "wanted"), [((0.5, 0.5), "view"), ((0.35, 0.7), "feature")])
def test_noise_is_told_apart_by_feature_where_the_bound_prefers_it(levels, wanted, prior):
    rng = np.random.default_rng(0)
    latent, loading = rng.standard_normal((80, 2)), rng.standard_normal((2, 12))
    X = latent @ loading + np.tile(levels, 6) * rng.standard_normal((80, 12))
    options = {"scale": "none", "noise_prior": prior, "random_state": 0}
    model = GroupFactorAnalysis(4, **options).fit([X[:, :6], X[:, 6:]])
    assert model.noise_ == wanted
    assert f"noise per {wanted}" in model.message_
    same = GroupFactorAnalysis(4, noise=wanted, **options).fit([X[:, :6], X[:, 6:]])
    assert same.noise_ == wanted
    assert same.lower_bound_ == model.lower_bound_
    np.testing.assert_array_equal(same.noise_variance_, model.noise_variance_)
