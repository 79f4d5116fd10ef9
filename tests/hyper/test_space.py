"""Hyperparameters in unconstrained coordinates: there and back, slopes by differences, what is refused."""

import numpy as np
import pytest

from latlin.hyper import Hyperparameter, Space
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
