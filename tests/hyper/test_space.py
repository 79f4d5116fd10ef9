"""Hyperparameters in unconstrained coordinates: there and back, slopes by differences, what is refused."""

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.hyper import Hyperparameter, Space
from latlin.hyper.space import _shares, foresee_fit
from latlin.priors import Beta, Flat, Gamma, HalfNormal, Uniform

MEMBERS = [
    Hyperparameter("scale", 0.7, Gamma(2.0, 1.5)),
    Hyperparameter("df", 5.0, Flat(), support=(2.0, np.inf)),
    Hyperparameter("share", 0.3, Beta(2.0, 3.0)),
    Hyperparameter("correlation", -0.2, Uniform(-1.0, 1.0)),
    Hyperparameter("shift", -1.3, Flat(), support=(-np.inf, np.inf)),
    Hyperparameter("below", -0.5, Flat(), support=(-np.inf, 1.0)),
]


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_coordinates(member):
    u, h = member.coordinate(member.start), 1e-5
    assert member.value(u) == pytest.approx(member.start, rel=1e-12)
    assert member.slope(u) == pytest.approx((member.value(u + h) - member.value(u - h)) / (2 * h), rel=1e-8)
    bend = (np.log(member.slope(u + h)) - np.log(member.slope(u - h))) / (2 * h)
    assert member.bend(u) == pytest.approx(bend, abs=1e-8)
    low, high = member.support
    assert low < member.value(-30.0) < member.value(30.0) <= high


@pytest.mark.parametrize("volume", [True, False])
def test_log_prior_and_its_slope(volume):
    space = Space(MEMBERS)
    u, h = space.start + 0.1, 1e-5
    value, slope = space.log_prior(u, volume=volume)
    values = space.values(u)
    expected = sum(float(m.prior.log_density(values[m.name])) for m in MEMBERS)
    expected += sum(np.log(m.slope(t)) for m, t in zip(MEMBERS, u, strict=True)) if volume else 0.0
    assert value == pytest.approx(expected, rel=1e-10)
    for j, step in enumerate(h * np.eye(len(u))):
        ahead, behind = (space.log_prior(u + s * step, volume=volume)[0] for s in (1, -1))
        assert slope[j] == pytest.approx((ahead - behind) / (2 * h), abs=1e-7)


def test_a_prior_narrows_the_support():
    assert Hyperparameter("x", 0.5, Uniform(0.2, 3.0)).support == (0.2, 3.0)
    assert Hyperparameter("x", 0.5, HalfNormal(1.0), support=(-np.inf, np.inf)).support == (0.0, np.inf)
    assert Hyperparameter("x", 1.0, bounds=(0.0, 10.0)).bounds == (1e-6, 10.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Hyperparameter("x", -1.0), "'x' must start between 0 and inf, got -1.0"),
        (lambda: Hyperparameter("x", "a"), "'x' must start between 0 and inf, got 'a'"),
        (lambda: Hyperparameter("x", 1.0, prior=3.0), "prior of 'x' must be one of latlin.priors, got 3.0"),
        (lambda: Hyperparameter("x", 1.0, Uniform(-2.0, -1.0), (0.0, np.inf)), "has no mass there"),
        (lambda: Hyperparameter("x", 1.0, bounds=(3.0, 2.0)), "bounds of 'x' must rise"),
        (lambda: Hyperparameter("x", 1.0, bounds=(2.0, 3.0)), r"must start within its bounds \[2, 3\], got 1"),
        (lambda: Space([]), "there must be some"),
        (lambda: Space([MEMBERS[0], MEMBERS[0]]), "different names"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("m", [1, 2, 3])
def test_shares_of_near_points_foresee_what_is_linear(m):
    rng = np.random.default_rng(m)
    u, slope = rng.standard_normal(m), rng.standard_normal(m)
    points = u + 0.3 * rng.standard_normal((2 * m + 1, m))
    points = points[np.argsort(np.abs(points - u).max(axis=1))]
    shares = _shares(points, u)
    assert shares.sum() == pytest.approx(1.0, abs=1e-9)
    assert shares @ (points @ slope) == pytest.approx(u @ slope, abs=1e-9)


def test_points_that_do_not_reach_u_foresee_nothing():
    line = np.array([[0.0, 0.0], [1.0, 0.0]])
    assert _shares(line, np.array([0.5, 1.0])) is None  # off the line
    assert _shares(line, np.array([-9.0, 0.0])) is None  # far out on it
    assert _shares(line[:1], np.array([0.1, 0.0])) is None
    np.testing.assert_allclose(_shares(line, np.array([-1.0, 0.0])), [2.0, -1.0], atol=1e-12)


def test_a_foreseen_start_is_nearer_than_that_of_the_nearest_fit():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4))
    sites = SiteFactor(X, potentials.Logit(rng.random(200) < 0.5 + 0.3 * np.tanh(X[:, 0])))

    def fit(u, start=None):
        return infer(LatentLinearModel([GaussianFactor(cov=np.exp(2.0 * u)), sites]), "gkl", start=start)

    u, points = -1.0, np.array([[-1.3], [-1.6]])
    fits, true = [fit(float(t)) for (t,) in points], fit(u)
    start = foresee_fit(fits, _shares(points, np.array([u])))

    def apart(found):
        log_gamma, nu = np.log(found.sites.gamma / true.sites.gamma), found.sites.nu - true.sites.nu
        return np.array([np.abs(log_gamma).max(), np.abs(nu).max()])

    assert np.all(apart(start) < 0.3 * apart(fits[0]))
    assert fit(u, start).log_evidence == pytest.approx(true.log_evidence, abs=1e-8)
    # what has no stand-ins of its sites, or others, is no help
    assert foresee_fit([fits[0], object()], np.array([2.0, -1.0])) is fits[0]
