"""Every term: its prior is normalised on its constraints, its slopes are right, and its sd means something."""

import numpy as np
import pytest
from scipy import linalg, sparse
from scipy.spatial import Delaunay

from latlin.additive import AR1, BYM2, Besag, Fixed, Group, Lattice, Map, RandomWalk, Seasonal, Smooth, Spline
from latlin.additive.places import Splines, indicator, join_columns
from latlin.additive.term import Surroundings

RING = {k: [(k - 1) % 7, (k + 1) % 7] for k in range(7)}
ISLANDS = {0: [1, 2], 1: [0, 2], 2: [0, 1], 3: [4], 4: [3], 5: []}
POINTS = np.random.default_rng(3).uniform(size=(12, 2))
CORNERS = np.vstack([POINTS, [[-0.5, -0.5], [1.5, -0.5], [-0.5, 1.5], [1.5, 1.5]]])


def table(n=40, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "t": np.resize(np.arange(9), n),
        "x": np.sort(rng.uniform(0, 10, n)).round(2),
        "z": rng.normal(size=n),
        "g": np.resize(list("abcde"), n),
        "h": np.resize(["u", "v"], n),
        "area": np.resize(np.arange(7), n),
        "island": np.resize(np.arange(6), n),
        "i": np.resize(np.arange(3), n),
        "j": np.resize(np.arange(4), n),
        "lon": rng.uniform(0, 1, n),
        "lat": rng.uniform(0, 1, n),
    }


TERMS = {
    "fixed": Fixed("z", "h"),
    "intercepts": Group("g"),
    "slopes": Group("g", "z"),
    "uncorrelated": Group("g", ("z", "x"), correlated=False),
    "three effects": Group("g", ("z", "x")),
    "combined": Group(("g", "h")),
    "centred": Group("g", "z", centred=True),
    "rw1": RandomWalk("t"),
    "rw2": RandomWalk("t", 2),
    "rw1 irregular": RandomWalk("x"),
    "rw2 irregular": RandomWalk("x", 2),
    "rw1 cyclic": RandomWalk("t", cyclic=True),
    "rw2 cyclic": RandomWalk("t", 2, cyclic=True),
    "rw1 by label": RandomWalk("t", by="h"),
    "rw2 by number": RandomWalk("t", 2, by="z"),
    "ar1": AR1("t"),
    "ar1 by label": AR1("t", by="h"),
    "seasonal even": Seasonal("t", 4),
    "seasonal odd": Seasonal("t", 3),
    "spline": Spline("x", count=9),
    "spline cyclic": Spline("x", count=9, cyclic=True),
    "surface": Spline(("x", "z"), count=5),
    "ou": Smooth("x", 0.5),
    "matern 3/2": Smooth("x"),
    "matern 5/2": Smooth("t", 2.5),
    "besag": Besag("area", graph=RING),
    "besag islands": Besag("island", graph=ISLANDS),
    "bym2": BYM2("area", graph=RING),
    "bym2 islands": BYM2("island", graph=ISLANDS),
    "lattice": Lattice("i", "j"),
    "lattice 2": Lattice("i", "j", order=2),
    "map": Map("lon", "lat", CORNERS, Delaunay(CORNERS).simplices),
}


def somewhere(part, seed=0):
    """Values of the hyperparameters off their starts."""
    rng = np.random.default_rng(seed)
    return {h.name: float(h.value(h.coordinate(h.start) + 0.3 * rng.normal())) for h in part.hyperparameters}


def restricted(part, Q):
    """Q on the coefficients that satisfy the constraints."""
    A = part.constraint
    basis = np.eye(part.size) if A is None else linalg.null_space(A.toarray())
    return basis.T @ Q @ basis


@pytest.mark.parametrize("name", TERMS)
def test_the_prior_is_normalised_on_its_constraints(name):
    part = TERMS[name].prepare(table(), Surroundings(unit=1.3))
    prior = part.prior(somewhere(part))
    Q = prior.precision.toarray()
    assert Q.shape == (part.size, part.size)
    np.testing.assert_allclose(Q, Q.T, atol=1e-10 * np.abs(Q).max())
    inside = restricted(part, Q)
    sign, log_det = np.linalg.slogdet(inside)
    assert sign > 0
    expected = 0.5 * log_det - 0.5 * len(inside) * np.log(2 * np.pi)
    assert prior.log_normaliser == pytest.approx(expected, rel=1e-7, abs=1e-6)


@pytest.mark.parametrize("name", [name for name in TERMS if name != "fixed"])
def test_slopes_are_those_of_differences(name):
    part = TERMS[name].prepare(table(), Surroundings(unit=1.3))
    values = somewhere(part)
    slopes = part.slopes(values)
    assert set(slopes) == {h.name for h in part.hyperparameters}
    for hyper, slope in slopes.items():
        step = 1e-5 * max(abs(values[hyper]), 0.1)
        up, down = (part.prior({**values, hyper: values[hyper] + s * step}) for s in (1, -1))
        numeric = (up.precision - down.precision).toarray() / (2 * step)
        np.testing.assert_allclose(slope.precision.toarray(), numeric, atol=2e-6 * max(np.abs(numeric).max(), 1e-3))
        assert slope.log_normaliser == pytest.approx(
            (up.log_normaliser - down.log_normaliser) / (2 * step), rel=1e-5, abs=1e-5
        )


@pytest.mark.parametrize(
    "name", ["rw1", "rw2", "rw1 irregular", "rw2 cyclic", "seasonal even", "besag", "lattice", "spline"]
)
def test_the_typical_standard_deviation_of_a_field_is_sd(name):
    part = TERMS[name].prepare(table(), Surroundings())
    structure = part.structure
    covariance = np.linalg.pinv(structure.matrix.toarray(), rcond=1e-9, hermitian=True)
    place = np.eye(structure.size)
    if name == "spline":
        place = part.place.weights(np.linspace(part.place.low, part.place.high, 4 * part.place.count)).toarray()
    assert np.mean(np.log(np.diagonal(place @ covariance @ place.T))) == pytest.approx(0.0, abs=1e-8)


@pytest.mark.parametrize("smoothness", [0.5, 1.5, 2.5])
def test_a_smooth_has_the_matern_covariance(smoothness):
    from sklearn.gaussian_process.kernels import Matern

    part = Smooth("x", smoothness).prepare({"x": [0.0, 0.3, 1.0, 1.7, 4.0]}, Surroundings())
    values = {"sd(gp(x))": 1.4, "length(gp(x))": 0.9}
    covariance = np.linalg.inv(part.prior(values).precision.toarray())[:: part.states, :: part.states]
    expected = 1.4**2 * Matern(length_scale=0.9, nu=smoothness)(part.nodes[:, None])
    np.testing.assert_allclose(covariance, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("smoothness", [0.5, 1.5, 2.5])
def test_a_smooth_between_its_places_is_the_process_given_them(smoothness):
    from sklearn.gaussian_process.kernels import Matern

    part = Smooth("x", smoothness).prepare({"x": [0.0, 0.3, 1.0, 1.7, 4.0]}, Surroundings())
    values = {"sd(gp(x))": 1.4, "length(gp(x))": 0.9}
    new = np.array([0.1, 1.0, 3.0, 6.0, -1.0])
    design, fresh = part.rows({"x": new}, values)
    S = np.linalg.inv(part.prior(values).precision.toarray())
    total = np.diagonal(design @ S @ design.T) + np.asarray(fresh.multiply(fresh).sum(axis=1)).ravel()
    np.testing.assert_allclose(total, 1.4**2, rtol=1e-6)
    kernel = 1.4**2 * Matern(length_scale=0.9, nu=smoothness)(new[:, None], part.nodes[:, None])
    np.testing.assert_allclose(np.asarray(design @ S[:, :: part.states]), kernel, atol=1e-6)


@pytest.mark.parametrize("smoothness", [0.5, 1.5, 2.5])
def test_new_places_of_a_smooth_belong_together(smoothness):
    from sklearn.gaussian_process.kernels import Matern

    part = Smooth("x", smoothness).prepare({"x": [0.0, 0.3, 1.0, 1.7, 4.0]}, Surroundings())
    values = {"sd(gp(x))": 1.4, "length(gp(x))": 0.9}
    # three beyond the end, two in one gap, and one of them twice
    new = np.array([4.5, 2.2, 5.0, 2.9, -1.0, 4.8, 2.2])
    design, fresh = part.rows({"x": new}, values)
    S = np.linalg.inv(part.prior(values).precision.toarray())
    found = design @ S @ design.T.toarray() + (fresh @ fresh.T).toarray()
    np.testing.assert_allclose(found, 1.4**2 * Matern(length_scale=0.9, nu=smoothness)(new[:, None]), atol=1e-6)


@pytest.mark.parametrize("period", [2, 3, 4])
def test_a_season_goes_on_beyond_both_ends(period):
    """As the same field on a longer line, given its middle: mean −Q_bb⁻¹Q_ba x_a and covariance Q_bb⁻¹."""
    n, more = 9, 6
    part = Seasonal("t", period).prepare({"t": np.arange(n)}, Surroundings())
    values = {"sd(seasonal(t))": 1.7}
    every = np.arange(-more, n + more)
    sums = np.array([(every >= i) & (every < i + period) for i in every[: len(every) - period + 1]], float)
    Q = sums.T @ sums * part.structure.factor / 1.7**2
    seen = (every >= 0) & (every < n)
    design, fresh = part.rows({"t": every[~seen]}, values)
    mean = -np.linalg.solve(Q[np.ix_(~seen, ~seen)], Q[np.ix_(~seen, seen)])
    np.testing.assert_allclose(design.toarray()[:, :n], mean, atol=1e-10)
    np.testing.assert_allclose((fresh @ fresh.T).toarray(), np.linalg.inv(Q[np.ix_(~seen, ~seen)]), atol=1e-9)
    # patterns repeat
    patterns = design.toarray()[:, n:]
    inside = part.rows({"t": every[~seen] % period + period}, values).design.toarray()[:, n:]
    np.testing.assert_allclose(patterns, inside, atol=1e-9)
    half = part.rows({"t": [n + 0.5]}, values)
    steps = part.rows({"t": [n, n + 1]}, values)
    np.testing.assert_allclose(half.design.toarray()[0], steps.design.toarray().mean(axis=0), atol=1e-12)


def test_close_places_of_a_smooth_do_no_harm():
    part = Smooth("x", 2.5).prepare({"x": [0.0, 1e-3, 0.012, 1.0]}, Surroundings())
    assert len(part.nodes) == 3
    S = np.linalg.inv(part.prior({"sd(gp(x))": 1.0, "length(gp(x))": 3.0}).precision.toarray())
    np.testing.assert_allclose(S[0, [0, 3]], 1.0, rtol=1e-3)
    np.testing.assert_allclose(part.rows({"x": [1e-3]}, {}).design.toarray()[0], np.eye(9)[0])


def test_a_walk_goes_on_beyond_its_end():
    frame = {"t": np.arange(6)}
    part = RandomWalk("t").prepare(frame, Surroundings())
    design, fresh = part.rows({"t": [5, 7, 8, -2]}, {"sd(rw1(t))": 2.0})
    np.testing.assert_allclose(design.toarray()[:3], np.eye(6)[[5, 5, 5]])
    innovation = 4.0 / part.structure.factor
    np.testing.assert_allclose(fresh.multiply(fresh).sum(axis=1), innovation * np.array([0, 2, 3, 2]))
    second = RandomWalk("t", 2).prepare(frame, Surroundings())
    design, fresh = second.rows({"t": [7]}, {"sd(rw2(t))": 2.0})
    # two steps ahead: 3x_5 − 2x_4, and innovations with weights 2 and 1
    np.testing.assert_allclose(design.toarray()[0, :6], [0, 0, 0, 0, -2, 3])
    assert fresh.multiply(fresh).sum() == pytest.approx(4.0 / second.structure.factor * 5)


@pytest.mark.parametrize("cyclic", [False, True])
def test_a_walk_between_its_places_is_a_bridge(cyclic):
    """As the walk on more places, given the others: mean −Q_bb⁻¹Q_ba x_a and covariance Q_bb⁻¹."""
    nodes, new = np.array([0.0, 1.0, 2.5, 4.0, 7.5]), np.array([3.1, 0.4, 2.9, 5.0])
    part = RandomWalk("x", cyclic=cyclic).prepare({"x": nodes}, Surroundings())
    if cyclic:
        new = np.append(new, 8.3)  # between the last place and the first
    every = np.sort(np.concatenate([nodes, new]))
    rows = np.diff(np.eye(len(every)), axis=0) / np.sqrt(np.diff(every))[:, None]
    mean_gap = np.diff(nodes).mean()
    if cyclic:
        last = (np.eye(len(every))[0] - np.eye(len(every))[-1]) / np.sqrt(7.5 + mean_gap - 8.3)
        rows = np.vstack([rows, last])
    Q = rows.T @ rows * mean_gap * part.structure.factor / 1.7**2
    b, a = np.searchsorted(every, new), np.searchsorted(every, nodes)
    # the last one is on a node, up to rounding
    design, fresh = part.rows({"x": np.append(new, 2.5 + 1e-15)}, {"sd(rw1(x))": 1.7})
    mean = -np.linalg.solve(Q[np.ix_(b, b)], Q[np.ix_(b, a)])
    np.testing.assert_allclose(design.toarray()[:-1], mean, atol=1e-10)
    found = (fresh @ fresh.T).toarray()
    np.testing.assert_allclose(found[:-1, :-1], np.linalg.inv(Q[np.ix_(b, b)]), atol=1e-10)
    assert found[-1, -1] == 0.0


def test_an_autoregression_forgets():
    part = AR1("t").prepare({"t": np.arange(4)}, Surroundings())
    values = {"sd(ar1(t))": 2.0, "rho(ar1(t))": 0.5}
    design, fresh = part.rows({"t": [5]}, values)
    assert design.toarray()[0, 3] == pytest.approx(0.25)
    assert fresh.multiply(fresh).sum() == pytest.approx(4.0 * (1 - 0.5**4))
    S = np.linalg.inv(part.prior(values).precision.toarray())
    np.testing.assert_allclose(S, 4.0 * linalg.toeplitz(0.5 ** np.arange(4)), rtol=1e-10)


@pytest.mark.parametrize("term", [RandomWalk("t"), AR1("t"), Seasonal("t", 3)])
def test_places_too_far_beyond_an_end_are_named(term):
    part = term.prepare({"t": np.arange(9)}, Surroundings())
    with pytest.raises(ValueError, match=r"'t' lies up to 1e\+06 steps beyond the places of"):
        part.rows({"t": [1e6 + 8]}, somewhere(part))


def test_unseen_groups_have_the_variance_of_groups():
    frame = {"g": ["a", "b", "a"], "x": [1.0, 2.0, 3.0]}
    part = Group("g", "x").prepare(frame, Surroundings())
    values = {"sd(g)": 2.0, "sd(g:x)": 0.5, "cor(g)": 0.3}
    design, fresh = part.rows({"g": ["b", "new", "new"], "x": [1.0, 1.0, 2.0]}, values)
    np.testing.assert_allclose(design.toarray(), [[0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]])
    z = np.array([[1.0, 1.0], [1.0, 2.0]])
    Sigma = np.array([[4.0, 0.3], [0.3, 0.25]])
    np.testing.assert_allclose((fresh @ fresh.T).toarray()[1:, 1:], z @ Sigma @ z.T)
    assert fresh[[0]].nnz == 0


def test_a_map_on_a_fine_mesh_has_its_sd_and_range():
    side = np.linspace(-4, 5, 37)
    nodes = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    part = Map("x", "y", nodes, Delaunay(nodes).simplices).prepare({"x": [0.5, 0.5], "y": [0.5, 1.5]}, Surroundings())
    design = part.rows({"x": [0.5, 0.5], "y": [0.5, 1.5]}, {}).design
    Q = part.prior({"sd(map(x, y))": 1.5, "range(map(x, y))": 3.0}).precision
    S = design @ np.linalg.solve(Q.toarray(), design.T.toarray())
    from sklearn.gaussian_process.kernels import Matern

    # smoothness one: κ = √(2ν)/length = √8/range
    expected = 1.5**2 * Matern(length_scale=0.5 * 3.0, nu=1.0)(np.array([[0.0], [1.0]]))
    np.testing.assert_allclose(S, expected, rtol=0.06)


def test_large_fields_are_scaled_as_small_ones(monkeypatch):
    from latlin.additive import intrinsic

    small = RandomWalk("t", 2).prepare({"t": np.arange(40)}, Surroundings()).structure
    monkeypatch.setattr(intrinsic, "DENSE", 10)
    large = RandomWalk("t", 2).prepare({"t": np.arange(40)}, Surroundings()).structure
    assert large.factor == pytest.approx(small.factor, rel=1e-8)
    assert large.log_determinant == pytest.approx(small.log_determinant, rel=1e-8)


@pytest.mark.parametrize(
    ("term", "frame", "words"),
    [
        (Group("g"), {"x": [1.0]}, "no column 'g'"),
        (Group("g"), {"g": ["a", "a"]}, "at least two"),
        (Group("g"), {"g": ["a", None]}, "1 missing labels, the first in row 1"),
        (RandomWalk("t"), {"t": [1.0, np.nan]}, "missing or infinite"),
        (RandomWalk("t"), {"t": [1.0, 1.0]}, "at least 2 distinct places"),
        (AR1("t"), {"t": [0.0, 1.0, np.pi]}, "regular grid"),
        (Seasonal("t", 12), {"t": np.arange(5)}, "more than one period"),
        (Besag("a"), {"a": [0, 1]}, "needs neighbours"),
        (Besag("a", graph=RING), {"a": [0, 9]}, "graph does not have"),
        (Besag("a", graph=[[0, 1], [0, 0]]), {"a": [0, 1]}, "symmetric"),
        (Lattice("i", "j", (2, 2)), {"i": [0, 2], "j": [0, 1]}, "whole numbers from 0 to 1"),
        (Map("x", "y", POINTS, Delaunay(POINTS).simplices), {"x": [9.0], "y": [9.0]}, "outside the triangles"),
    ],
)
def test_bad_tables_are_named(term, frame, words):
    with pytest.raises(ValueError, match=words):
        term.prepare(frame, Surroundings())


def test_blocks_side_by_side_whether_their_rows_are_even_or_not():
    rng = np.random.default_rng(0)
    even = [sparse.csr_array(rng.standard_normal((5, 2))), indicator(np.array([2, 0, 1, 1, 2]), 3)]
    uneven = indicator(np.array([0, -1, 1, -1, 0]), 2, rng.standard_normal(5))
    for blocks in (even, [*even, uneven]):
        found = join_columns(blocks)
        np.testing.assert_array_equal(found.toarray(), np.hstack([block.toarray() for block in blocks]))
        assert found.has_canonical_format


def test_columns_are_standardised_alike_whether_one_has_zeros_or_not():
    rng = np.random.default_rng(1)
    x, holes = rng.normal(3.0, 2.0, 40), rng.normal(3.0, 2.0, 40)
    holes[:5] = 0.0
    for z in (x[::-1], holes):
        part = Fixed("x", "z").prepare({"x": x, "z": z}, Surroundings())
        found = part.rows({"x": x, "z": z}, {}).design.toarray()
        np.testing.assert_allclose(found[:, 1:], np.stack([(v - v.mean()) / v.std() for v in (x, z)], axis=1))


def test_last_knot_is_the_largest_place_whatever_rounding_does():
    for seed in range(50):
        low, high = np.sort(np.random.default_rng(seed).uniform(0.0, 1.0, 2))
        for count in (8, 20):
            weights = Splines("x", low, high, count).weights(np.array([low, high]))
            assert np.allclose(weights.sum(axis=1), 1.0)
