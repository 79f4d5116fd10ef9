"""Every term as the covariance of its effects, written anew from its definition: evidence and fitted values agree.

With normal responses a model at given hyperparameters is a multivariate normal density, whatever its terms are.
"""

from itertools import pairwise

import numpy as np
import pytest
from scipy import linalg
from scipy.spatial import Delaunay
from scipy.stats import multivariate_normal
from sklearn.gaussian_process.kernels import Matern

from latlin.additive import AdditiveModel, Fixed, Map

N, NOISE, LEVEL = 40, 0.6, 3.0
RING = {k: [(k - 1) % 6, (k + 1) % 6] for k in range(6)}
CORNERS = np.vstack(
    [np.random.default_rng(3).uniform(size=(9, 2)), [[-0.5, -0.5], [1.5, -0.5], [-0.5, 1.5], [1.5, 1.5]]]
)


def table():
    rng = np.random.default_rng(8)
    frame = {
        "x": rng.normal(2.0, 1.5, N),
        "z": rng.normal(size=N),
        "u": rng.uniform(size=N),
        "v": rng.uniform(size=N),
        "t": np.append(rng.permutation(9), rng.integers(0, 9, N - 9)),
        "i": np.append([2, 0], rng.integers(0, 3, N - 2)),
        "j": np.append([3, 0], rng.integers(0, 4, N - 2)),
        "area": rng.integers(0, 6, N),
        "a": np.array(list("pqr"))[rng.integers(0, 3, N)],
        "b": np.array(["k", "l"])[rng.integers(0, 2, N)],
        "g": rng.integers(0, 5, N),
    }
    y = np.sin(frame["t"]) + 0.5 * frame["x"] + rng.normal(size=N)
    return {**frame, "y": (y - y.mean()) / y.std()}


def alike(labels):
    return np.equal.outer(labels, labels) * 1.0


def typical(R, at=None):
    """The generalised inverse of a precision, its typical variance at some places being one."""
    G = linalg.pinvh(np.asarray(R, float), rtol=1e-10)
    seen = np.eye(len(G)) if at is None else at
    return G / np.exp(np.mean(np.log(np.diagonal(seen @ G @ seen.T))))


def squares(rows):
    return rows.T @ rows


def cubic(u):
    """The B-spline of degree three with knots −2, −1, 0, 1, 2."""
    u = np.abs(u)
    return np.where(u < 1, 2 / 3 - u**2 + u**3 / 2, np.where(u < 2, (2 - u) ** 3 / 6, 0.0))


def splines(x, count, low, high):
    return cubic((x[:, None] - low) / (high - low) * (count - 3) - (np.arange(count) - 1))


def circle(x, count, low, high):
    turns = (x[:, None, None] - low) / (high - low) * count - np.arange(count)[:, None]
    return cubic(turns + count * np.array([-1, 0, 1, 2])).sum(axis=2)


def beside(trend):
    """A trend with a coefficient of standard deviation five units."""
    return 25.0 * np.outer(trend, trend)


def spline(x, count):
    low, high = x.min(), x.max()
    D, grid = np.diff(np.eye(count), n=2, axis=0), np.linspace(low, high, 4 * count)
    B = splines(x, count, low, high)
    line = (x - 0.5 * (low + high)) / x.std()
    return B @ typical(squares(D), splines(grid, count, low, high)) @ B.T, beside(line)


def surface(x, z, count):
    ends = [(v.min(), v.max()) for v in (x, z)]
    P, eye = squares(np.diff(np.eye(count), n=2, axis=0)), np.eye(count)
    grids = [splines(np.linspace(*e, 4 * count), count, *e) for e in ends]
    B = np.stack([np.kron(splines(x, count, *ends[0])[n], splines(z, count, *ends[1])[n]) for n in range(N)])
    a, b = (v - 0.5 * (e[0] + e[1]) for v, e in zip((x, z), ends, strict=True))
    lines = sum(beside(v / v.std()) for v in (a, b, a * b))
    return B @ typical(np.kron(P, eye) + np.kron(eye, P), np.kron(*grids)) @ B.T, lines


def mesh(f, sd, reach):
    """Finite elements of piecewise linear functions, triangle by triangle."""
    triangles = Delaunay(CORNERS)
    C, G, n = np.zeros(len(CORNERS)), np.zeros((len(CORNERS), len(CORNERS))), len(CORNERS)
    for corner in triangles.simplices:
        plane = np.linalg.inv(np.column_stack([np.ones(3), CORNERS[corner]]))[1:]  # gradients of the three functions
        area = 0.5 * abs(np.linalg.det(np.column_stack([np.ones(3), CORNERS[corner]])))
        C[corner] += area / 3
        G[np.ix_(corner, corner)] += area * plane.T @ plane
    K = 8 / reach**2 * np.diag(C) + G
    S = np.linalg.inv(K @ np.diag(1 / C) @ K) * 4 * np.pi * 8 / reach**2 * sd**2
    points, rows = np.column_stack([f["u"], f["v"]]), np.zeros((N, n))
    for row, k in enumerate(triangles.find_simplex(points)):
        corner = triangles.simplices[k]
        rows[row, corner] = np.linalg.solve(np.vstack([np.ones(3), CORNERS[corner].T]), [1.0, *points[row]])
    return rows @ S @ rows.T


def patterns(t, p):
    """Repeating patterns of sum zero and mean square one."""
    waves = [np.sqrt(2) * w(2 * np.pi * k * t / p) for k in range(1, (p + 1) // 2) for w in (np.cos, np.sin)]
    return sum(beside(wave) for wave in [*waves, *([np.cos(np.pi * t)] if p % 2 == 0 else [])])


def neighbours(edges, size):
    rows = np.zeros((len(edges), size))
    for row, (a, b) in zip(rows, edges, strict=True):
        row[a], row[b] = 1.0, -1.0
    return squares(rows)


def windows(n, p):
    return np.array([[i <= k < i + p for k in range(n)] for i in range(n - p + 1)], float)


def lattice(f, order):
    edges = [(4 * i + j, 4 * i + j + 1) for i in range(3) for j in range(3)]
    edges += [(4 * i + j, 4 * i + j + 4) for i in range(2) for j in range(4)]
    R = neighbours(edges, 12)
    at = 4 * f["i"] + f["j"]
    return typical(R if order == 1 else R @ R)[np.ix_(at, at)]


def walk(f, order, cyclic=False):
    D = np.diff(np.eye(9), n=order, axis=0)
    D = np.roll(np.eye(9), 1, axis=1) - np.eye(9) if cyclic else D
    return typical(squares(D))[np.ix_(f["t"], f["t"])]


def ring(f):
    R = neighbours([tuple(sorted(edge)) for edge in [*pairwise(range(6)), (5, 0)]], 6)
    return typical(R)[np.ix_(f["area"], f["area"])]


def correlated(f):
    Sigma = np.array([[0.49, 0.3 * 0.7 * 0.4], [0.3 * 0.7 * 0.4, 0.16]])
    z = np.column_stack([np.ones(N), f["x"]])
    return alike(f["g"]) * (z @ Sigma @ z.T)


STEADY = (np.arange(9) - 4) / np.arange(9).std()
#: right-hand sides with the values of their hyperparameters, and the covariance of their effects
REWRITES = {
    "(1 | a/b)": (
        {"sd(a)": 0.8, "sd(a:b)": 0.5},
        lambda f: 0.64 * alike(f["a"]) + 0.25 * alike(f["a"]) * alike(f["b"]),
    ),
    "(1 | g) + (1 | a)": ({"sd(g)": 0.8, "sd(a)": 0.5}, lambda f: 0.64 * alike(f["g"]) + 0.25 * alike(f["a"])),
    "(1 + x | g)": ({"sd(g)": 0.7, "sd(g:x)": 0.4, "cor(g)": 0.3}, correlated),
    "(1 + x || g)": (
        {"sd(g)": 0.7, "sd(g:x)": 0.4},
        lambda f: alike(f["g"]) * (0.49 + 0.16 * np.outer(f["x"], f["x"])),
    ),
    "(0 + x | g)": ({"sd(g:x)": 0.4}, lambda f: alike(f["g"]) * 0.16 * np.outer(f["x"], f["x"])),
    "rw1(t)": ({"sd(rw1(t))": 0.9}, lambda f: 0.81 * walk(f, 1)),
    "rw1(t, cyclic=True)": ({"sd(rw1(t))": 0.9}, lambda f: 0.81 * walk(f, 1, True)),
    "rw2(t)": ({"sd(rw2(t))": 0.9}, lambda f: 0.81 * walk(f, 2) + beside(STEADY[f["t"]])),
    "rw1(t, by=b)": ({"sd(rw1(t):b)": 0.9}, lambda f: 0.81 * walk(f, 1) * alike(f["b"])),
    # the coefficient that varies has a mean of its own, unless there is one already
    "rw1(t, by=z)": (
        {"sd(rw1(t):z)": 0.9},
        lambda f: 0.81 * walk(f, 1) * np.outer(f["z"], f["z"]) + beside(f["z"]) / np.mean(f["z"] ** 2),
    ),
    "rw1(t, by=x)": ({"sd(rw1(t):x)": 0.9}, lambda f: 0.81 * walk(f, 1) * np.outer(f["x"], f["x"])),
    "ar1(t)": (
        {"sd(ar1(t))": 0.9, "rho(ar1(t))": 0.6},
        lambda f: 0.81 * 0.6 ** np.abs(np.subtract.outer(f["t"], f["t"])),
    ),
    "seasonal(t, 4)": (
        {"sd(seasonal(t))": 0.9},
        lambda f: 0.81 * typical(squares(windows(9, 4)))[np.ix_(f["t"], f["t"])] + patterns(f["t"], 4),
    ),
    "seasonal(t, 3)": (
        {"sd(seasonal(t))": 0.9},
        lambda f: 0.81 * typical(squares(windows(9, 3)))[np.ix_(f["t"], f["t"])] + patterns(f["t"], 3),
    ),
    "gp(t)": (
        {"sd(gp(t))": 0.9, "length(gp(t))": 2.5},
        lambda f: 0.81 * Matern(2.5, nu=1.5)(np.asarray(f["t"], float)[:, None]),
    ),
    "gp(t, smoothness=2.5)": (
        {"sd(gp(t))": 0.9, "length(gp(t))": 2.5},
        lambda f: 0.81 * Matern(2.5, nu=2.5)(np.asarray(f["t"], float)[:, None]),
    ),
    "s(x, k=7)": ({"sd(s(x))": 0.9}, lambda f: np.tensordot([0.81, 1.0], spline(f["x"], 7), 1)),
    "s(u, k=6, cyclic=True, period=(0, 1))": (
        {"sd(s(u))": 0.9},
        lambda f: (
            0.81
            * circle(f["u"], 6, 0, 1)
            @ typical(
                squares(np.roll(np.eye(6), 1, 1) - 2 * np.eye(6) + np.roll(np.eye(6), -1, 1)),
                circle(np.linspace(0, 1, 24), 6, 0, 1),
            )
            @ circle(f["u"], 6, 0, 1).T
        ),
    ),
    "te(x, z, k=5)": ({"sd(s(x, z))": 0.9}, lambda f: np.tensordot([0.81, 1.0], surface(f["x"], f["z"], 5), 1)),
    "s(x, k=7, by=b)": (
        {"sd(s(x):b)": 0.9},
        lambda f: alike(f["b"]) * np.tensordot([0.81, 1.0], spline(f["x"], 7), 1),
    ),
    "lattice(i, j)": ({"sd(lattice(i, j))": 0.9}, lambda f: 0.81 * lattice(f, 1)),
    "lattice(i, j, order=2)": ({"sd(lattice(i, j))": 0.9}, lambda f: 0.81 * lattice(f, 2)),
    "besag(area)": ({"sd(besag(area))": 0.9}, lambda f: 0.81 * ring(f)),
    "bym2(area)": (
        {"sd(bym2(area))": 0.9, "rho(bym2(area))": 0.3},
        lambda f: 0.81 * (0.7 * alike(f["area"]) + 0.3 * ring(f)),
    ),
    "map": ({"sd(map(u, v))": 0.9, "range(map(u, v))": 0.7}, lambda f: mesh(f, 0.9, 0.7)),
}


@pytest.mark.parametrize("right", REWRITES)
def test_a_term_is_the_covariance_of_its_effects(right):
    frame = table()
    values, covariance = REWRITES[right]
    options = {"hyperparameters": "fixed", "priors": {"Intercept": LEVEL, "x": 2.0, "sigma": NOISE, **values}}
    if right == "map":
        field = Map("u", "v", CORNERS, Delaunay(CORNERS).simplices)
        model = AdditiveModel(response="y", terms=[Fixed("x"), field], **options).fit(frame)
    else:
        model = AdditiveModel(f"y ~ x + {right}", **options).fit(frame, graph=RING)
    K = covariance(frame) + LEVEL**2 + 4.0 * np.outer(frame["x"], frame["x"])
    total = K + NOISE**2 * np.eye(N)
    assert model.log_evidence_ == pytest.approx(multivariate_normal(cov=total).logpdf(frame["y"]), abs=2e-6)
    mean, sd = model.predict_latent(frame, return_std=True)
    np.testing.assert_allclose(mean, K @ np.linalg.solve(total, frame["y"]), atol=1e-6)
    np.testing.assert_allclose(sd**2, np.diagonal(K - K @ np.linalg.solve(total, K)), atol=1e-6)
