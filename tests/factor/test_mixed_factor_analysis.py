"""Mixed-data factor analysis from outside: exact special cases, imputation against rivals, tables, manners."""

import warnings

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.exceptions import NotFittedError

import latlin
from latlin.factor import FactorAnalysis, MixedFactorAnalysis
from latlin.numerics.archive import write_archive

TYPES = ["real"] * 3 + ["binary"] * 3 + ["count"] * 3 + ["ordinal"] * 3 + ["categorical"]
CLASSES = ("binary", "ordinal", "categorical")


def mixed_table(seed, n=300, rank=2):
    rng = np.random.default_rng(seed)
    w, f = rng.standard_normal((n, rank)), 1.8 * rng.standard_normal((12, rank)) / np.sqrt(rank)
    eta = w @ f.T
    scores = w @ (1.5 * rng.standard_normal((rank, 4))) + rng.gumbel(size=(n, 4))
    return np.column_stack(
        [
            eta[:, :3] + 0.7 * rng.standard_normal((n, 3)),
            rng.random((n, 3)) < 1.0 / (1.0 + np.exp(-eta[:, 3:6])),
            rng.poisson(np.exp(np.minimum(0.5 * eta[:, 6:9] + 0.5, 4.0))),
            np.digitize(eta[:, 9:12] + rng.logistic(size=(n, 3)), [-2.0, 0.0, 1.5]),
            scores.argmax(axis=1),
        ]
    )


# --- rivals -----------------------------------------------------------------------------------------------------------


def by_margins(H, types):
    filled = H.copy()
    for j, kind in enumerate(types):
        seen = H[~np.isnan(H[:, j]), j]
        values, counts = np.unique(seen, return_counts=True)
        filled[np.isnan(H[:, j]), j] = values[counts.argmax()] if kind in CLASSES else seen.mean()
    return filled


def one_hot(H, types):
    parts = []
    for j, kind in enumerate(types):
        seen = np.unique(H[~np.isnan(H[:, j]), j])
        ones = np.where(np.isnan(H[:, j])[:, None], np.nan, H[:, j][:, None] == seen)
        parts.append(ones if kind == "categorical" else H[:, j][:, None])
    return parts


def decoded(H, types, parts, scores):
    filled = H.copy()
    for j, kind in enumerate(types):
        gap, seen = np.isnan(H[:, j]), np.unique(H[~np.isnan(H[:, j]), j])
        if kind == "categorical":
            filled[gap, j] = seen[scores[j][gap].argmax(axis=1)]
        elif kind in CLASSES:
            filled[gap, j] = seen[np.abs(parts[j][gap] - seen).argmin(axis=1)]
        else:
            filled[gap, j] = parts[j][gap, 0]
    return filled


def split_like(parts, joined):
    return np.split(joined, np.cumsum([part.shape[1] for part in parts])[:-1], axis=1)


def filled_by_factors(codes, rank):
    with warnings.catch_warnings():
        # codes that add up to one have no noise
        warnings.simplefilter("ignore")
        return FactorAnalysis(rank, method="em", tol=1e-3).fit(codes).impute(codes)


def by_gaussian_factors(H, types, rank):
    parts = one_hot(H, types)
    joined = np.hstack(parts)
    filled = filled_by_factors(joined, rank)
    parts = split_like(parts, filled)
    return decoded(H, types, parts, parts)


def by_gaussian_copula(H, types, rank):
    """Normal scores, a Gaussian factor model of them, and back through the empirical quantiles."""
    parts = one_hot(H, types)
    joined = np.hstack(parts)
    scores = np.full_like(joined, np.nan)
    for column, score in zip(joined.T, scores.T, strict=True):
        seen = ~np.isnan(column)
        ordered = np.sort(column[seen])
        rank_of = np.searchsorted(ordered, column[seen], "left") + np.searchsorted(ordered, column[seen], "right")
        score[seen] = norm.ppf(0.5 * rank_of / len(ordered))
    filled = filled_by_factors(scores, rank)
    back = joined.copy()
    for column, score, out in zip(joined.T, filled.T, back.T, strict=True):
        ordered, gap = np.sort(column[~np.isnan(column)]), np.isnan(column)
        out[gap] = ordered[np.minimum((norm.cdf(score[gap]) * len(ordered)).astype(int), len(ordered) - 1)]
    return decoded(H, types, split_like(parts, back), split_like(parts, filled))


def loss(filled, X, gap, types):
    """Mean over columns of the error rate, or of the root mean square error in standard deviations."""
    parts = []
    for j, kind in enumerate(types):
        at, truth = np.asarray(filled[gap[:, j], j], dtype=float), X[gap[:, j], j]
        error = np.mean(at != truth) if kind in CLASSES else np.sqrt(np.mean((at - truth) ** 2)) / X[:, j].std()
        parts.append(error)
    return np.mean(parts)


def test_imputation_beats_margins_gaussian_factors_and_a_gaussian_copula():
    losses = []
    for seed in range(2):
        X, types = mixed_table(seed), TYPES
        gap = np.random.default_rng(100 + seed).random(X.shape) < 0.2
        H = np.where(gap, np.nan, X)
        model = MixedFactorAnalysis(2, types=types, random_state=0).fit(H)
        rivals = (by_margins(H, types), by_gaussian_factors(H, types, 2), by_gaussian_copula(H, types, 2))
        losses.append([loss(filled, X, gap, types) for filled in (model.impute(H), *rivals)])
    for ours, *theirs in losses:
        assert ours < min(theirs)


def test_probabilities_are_calibrated_and_observed_entries_stay():
    X = mixed_table(3, n=600)
    gap = np.random.default_rng(0).random(X.shape) < 0.2
    model = MixedFactorAnalysis(2, types=TYPES, random_state=0).fit(np.where(gap, np.nan, X))
    filled, certainty = model.impute(np.where(gap, np.nan, X), return_probabilities=True)
    np.testing.assert_allclose(filled[~gap], X[~gap], atol=1e-12)
    for j, kind in enumerate(TYPES):
        at = gap[:, j]
        if kind not in CLASSES:
            assert np.all(certainty[j][~at] == 0.0)
            z = (filled[at, j] - X[at, j]) / certainty[j][at]
            assert 0.5 < np.mean(z**2) < 1.8
            continue
        p = certainty[j]
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        assert np.all(p[~at].max(axis=1) == 1.0)
        hits = p[at].argmax(axis=1) == X[at, j]
        # the mean confidence is the share of hits, within four standard errors
        confidence = p[at].max(axis=1)
        assert abs(hits.mean() - confidence.mean()) < 4.0 * np.sqrt(np.mean(confidence * (1 - confidence)) / at.sum())


def test_real_columns_alone_are_factor_analysis():
    rng = np.random.default_rng(0)
    X = 2.0 + rng.standard_normal((400, 2)) @ rng.standard_normal((2, 7)) + 0.6 * rng.standard_normal((400, 7))
    X[rng.random(X.shape) < 0.1] = np.nan
    exact = FactorAnalysis(2, method="em").fit(X)
    model = MixedFactorAnalysis(2, penalty=0.0, tol=1e-5, max_iter=3000, random_state=0).fit(X)
    assert model.lower_bound_ == pytest.approx(exact.log_likelihood_, abs=0.02)
    covariance = model.components_.T @ model.components_ + np.diag(model.noise_variance_)
    np.testing.assert_allclose(covariance, exact.get_covariance(), atol=0.02)
    assert model.score_samples(X).sum() == pytest.approx(model.lower_bound_, abs=1e-4)
    np.testing.assert_allclose(model.impute(X), exact.impute(X), atol=0.05)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, "lower bound"),
        ({"engine": "laplace"}, "approximation"),
        ({"engine": "ep"}, "approximation"),
        ({"latents": "laplace"}, "lower bound"),
        ({"latents": "student-t", "df": 4.0}, "lower bound"),
        ({"engine": "laplace", "latents": "student-t"}, "approximation"),
    ],
)
def test_engines_and_latents(options, kind):
    X = mixed_table(4, n=150)
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    model = MixedFactorAnalysis(2, types=TYPES, random_state=0, **options).fit(X)
    assert model.converged_
    assert model.evidence_kind_ == kind
    if kind == "lower bound":
        assert np.diff(model.trace_).min() > -1e-9 * abs(model.lower_bound_)
    z, cov = model.transform(X, return_cov=True)
    assert z.shape == (150, 2)
    assert np.all(np.linalg.eigvalsh(cov) > 0.0)
    plain = MixedFactorAnalysis(2, types=TYPES, random_state=0).fit(X)
    assert model.lower_bound_ == pytest.approx(plain.lower_bound_, rel=0.03)


def test_a_data_frame_goes_in_and_comes_out():
    pandas = pytest.importorskip("pandas")
    X = mixed_table(5, n=200)
    frame = pandas.DataFrame(
        {
            "length": X[:, 0],
            "smokes": X[:, 3].astype(bool),
            "visits": X[:, 6].astype(int),
            "health": pandas.Categorical.from_codes(
                X[:, 9].astype(int), ["poor", "fair", "good", "best"], ordered=True
            ),
            "town": np.array(["Ayr", "Bath", "Cork", "Deal"])[X[:, 12].astype(int)],
            "score": X[:, 10].astype(int),
        },
        index=np.arange(200) + 7,
    )
    model = MixedFactorAnalysis(2, types={"score": "ordinal"}, random_state=0).fit(frame)
    kinds = {column.name: column.kind for column in model.table_.columns}
    assert kinds == {
        "length": "real",
        "smokes": "binary",
        "visits": "count",
        "health": "ordinal",
        "town": "categorical",
        "score": "ordinal",
    }
    assert [c.levels for c in model.table_.columns if c.name == "health"] == [("poor", "fair", "good", "best")]
    holes = frame.astype({"smokes": object, "visits": float}).copy()
    holes.loc[[7, 9], "town"] = None
    holes.loc[8, "length"] = np.nan
    holes.loc[10, "health"] = None
    filled, certainty = model.impute(holes, return_probabilities=True)
    assert filled.columns.tolist() == frame.columns.tolist()
    assert filled.index.tolist() == frame.index.tolist()
    assert set(filled["town"]) <= {"Ayr", "Bath", "Cork", "Deal"}
    assert not filled.isna().any().any()
    assert filled["town"].tolist()[3:] == frame["town"].tolist()[3:]
    assert certainty["town"].shape == (200, 4)
    draws = model.sample(50, random_state=0)
    assert set(draws) == set(frame.columns)
    assert set(draws["health"]) <= {"poor", "fair", "good", "best"}
    assert np.all(draws["visits"] >= 0.0)


def test_saved_and_loaded_answers_are_the_same(tmp_path):
    pandas = pytest.importorskip("pandas")
    X = mixed_table(8, n=100)
    names = np.array(["low", "middle", "high", "top"])
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 3], "c": X[:, 6], "d": names[X[:, 12].astype(int)]})
    holes = frame.mask(np.random.default_rng(0).random(frame.shape) < 0.1)
    arrays = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    for table, options in ((holes, {"types": {"c": "count"}}), (arrays, {"types": TYPES, "engine": "ep"})):
        model = MixedFactorAnalysis(1, random_state=0, **options).fit(table)
        model.save(tmp_path / "model.npz")
        again = latlin.load(tmp_path / "model.npz")
        np.testing.assert_array_equal(again.transform(table), model.transform(table))
        assert np.all(np.asarray(again.impute(table)) == np.asarray(model.impute(table)))
        assert again.lower_bound_ == model.lower_bound_
        np.testing.assert_array_equal(again.components_, model.components_)
    write_archive(tmp_path / "other.npz", "x", {}, {})
    with pytest.raises(ValueError, match=r"holds 'x', not 'latlin.factor.MixedFactorAnalysis'"):
        MixedFactorAnalysis.load(tmp_path / "other.npz")


def test_draws_have_the_fitted_margins():
    X = mixed_table(6, n=800)
    model = MixedFactorAnalysis(2, types=TYPES, random_state=0).fit(X)
    draws = model.sample(20_000, random_state=1)
    for j, kind in enumerate(TYPES):
        spread = 5.0 * X[:, j].std() / np.sqrt(800)
        if kind in ("real", "binary", "ordinal"):
            assert abs(draws[j].mean() - X[:, j].mean()) < spread
    correlation = np.corrcoef(np.column_stack([draws[j] for j in range(6)]).T)
    assert np.abs(correlation - np.corrcoef(X[:, :6].T)).max() < 0.15


def test_bad_input_is_named():
    X = mixed_table(0, n=40)
    fit = MixedFactorAnalysis(2, types=TYPES).fit
    with pytest.raises(ValueError, match="unknown type 'colour' of column 2"):
        MixedFactorAnalysis(types={2: "colour"}).fit(X)
    with pytest.raises(ValueError, match=r"one entry per column \(13\), got 2"):
        MixedFactorAnalysis(types=["real", "real"]).fit(X)
    with pytest.raises(ValueError, match="names the column 99"):
        MixedFactorAnalysis(types={99: "real"}).fit(X)
    for column, value, text in (
        (1, np.nan, "column 1 has no observed entry"),
        (1, 2.0, "column 1 is constant"),
        (4, 1.0, "column 4 is constant"),
    ):
        broken = X.copy()
        broken[:, column] = value
        with pytest.raises(ValueError, match=text):
            fit(broken)
    broken = X.copy()
    broken[3, 7] = 1.5
    with pytest.raises(ValueError, match=r"column 7 must hold counts 0, 1, 2, …, got 1\.5"):
        fit(broken)
    with pytest.raises(ValueError, match="column 0 is binary but has 40 levels"):
        MixedFactorAnalysis(types={0: "binary"}).fit(X)
    for name, value in (("engine", "mcmc"), ("latents", "cauchy"), ("n_components", 0), ("df", 2.0), ("penalty", -1.0)):
        with pytest.raises(ValueError, match=name):
            MixedFactorAnalysis(**{name: value}).fit(X)
    with pytest.raises(ValueError, match="'ep' and 'quadrature' with Gaussian ones"):
        MixedFactorAnalysis(engine="ep", latents="laplace").fit(X)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        MixedFactorAnalysis(2, types=TYPES).transform(X)
    model = fit(X)
    assert model.table_.families.count("gaussian") == 3
    unseen = X.copy()
    unseen[0, 12] = 9.0
    with pytest.raises(ValueError, match=r"column 12 has the unknown level 9\.0"):
        model.transform(unseen)


def test_rows_in_which_a_family_is_not_seen_have_scores():
    rng = np.random.default_rng(5)
    latent = rng.standard_normal(60)
    table = np.column_stack([latent + 0.3 * rng.standard_normal(60), (latent + rng.standard_normal(60) > 0.0)])
    table[:6, 0] = np.nan
    model = MixedFactorAnalysis(1, types={1: "binary"}, random_state=0).fit(table)
    assert model.transform(table[:6]) == pytest.approx(model.transform(table)[:6], abs=1e-6)
