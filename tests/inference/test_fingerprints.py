"""Checkpoints belong to one model: another one is refused, however small the difference."""

import numpy as np
import pytest

from latlin import Constraint, GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials
from latlin.inference.engine import fingerprint

ENGINE = engines.GaussianKL()


def at(centre):
    components = potentials.GaussianMixture([0.5, 0.5], [0.0, centre], [1.0, 1.0])
    return LatentLinearModel([GaussianFactor([49.0], 1.0), SiteFactor(None, components)])


def test_a_far_component_that_moved_is_refused(tmp_path):
    infer(at(50.0), "mean-field", checkpoint=tmp_path / "c")
    with pytest.raises(ValueError, match="belongs to another model"):
        infer(at(46.0), "mean-field", checkpoint=tmp_path / "c")


def custom(function, **options):
    return LatentLinearModel([GaussianFactor(dim=1), SiteFactor(None, potentials.Custom(function, **options))])


def steep(slope):
    return lambda x: -np.logaddexp(0.0, -x) - np.where(x > 30.0, slope * (x - 30.0), 0.0)


def falling(x, slope=1.0):
    return -slope * np.abs(x) ** 2


def differing(x, *, slope=1.0):
    return -slope * np.abs(x) ** 2


PAIRS = {
    "what a function keeps": (custom(steep(1.0)), custom(steep(2.0))),
    "constants": (custom(lambda x: -(x**2)), custom(lambda x: -(x**2) - 1e-9 * np.maximum(x - 1e9, 0.0))),
    "arguments": (
        custom(lambda x, a: -a * x**2, args=[np.array([1.0])]),
        custom(lambda x, a: -a * x**2, args=[np.array([1.0 + 1e-15])]),
    ),
    "scale": (custom(falling, scale=1.0), custom(falling, scale=2.0)),
    "defaults": (custom(falling), custom(differing)),
    "flags": (custom(falling), custom(falling, log_concave=True)),
    "constraints": tuple(
        LatentLinearModel([GaussianFactor(dim=2)], constraints=[Constraint([1.0, 1.0], e)]) for e in (0.0, 1.0)
    ),
    "normalised": tuple(
        LatentLinearModel([GaussianFactor(dim=2), GaussianFactor(dim=2)], normalise_prior=say) for say in (False, True)
    ),
    "centre": (at(50.0), at(50.0 + 1e-13)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_fingerprints_differ(name):
    first, second = PAIRS[name]
    assert fingerprint(first, ENGINE) != fingerprint(second, ENGINE)
    assert fingerprint(first, ENGINE) == fingerprint(first, ENGINE)


def test_the_same_function_made_again_is_the_same():
    assert fingerprint(custom(steep(1.0)), ENGINE) == fingerprint(custom(steep(1.0)), ENGINE)


STRENGTH = {"now": 1.0}


def hidden(x):
    """Depends on something that no digest sees."""
    return -STRENGTH["now"] * np.logaddexp(0.0, 3.0 * x)


@pytest.mark.parametrize(
    "engine", ["gkl", engines.GaussianKL(covariance="diagonal"), "mean-field", "laplace", "map", "ep", "ai-kl"]
)
def test_a_state_with_another_bound_is_refused(engine, tmp_path, monkeypatch):
    site = potentials.Custom(hidden, log_concave=True)
    model = LatentLinearModel([GaussianFactor(dim=1), SiteFactor(None, site)])
    monkeypatch.setattr("latlin.inference.engine._values", lambda potential: iter(()))
    first = infer(model, engine, checkpoint=tmp_path / "c")
    again = infer(model, engine, checkpoint=tmp_path / "c")
    np.testing.assert_array_equal(again.mean, first.mean)
    monkeypatch.setitem(STRENGTH, "now", 1.01)
    with pytest.raises(ValueError, match="belongs to another model"):
        infer(model, engine, checkpoint=tmp_path / "c")


def test_a_model_for_which_auto_takes_another_engine_is_refused(tmp_path):
    rows = np.array([[1.0, 0.5], [0.3, -1.0], [-0.4, 0.8]])
    sites = (potentials.Logit([1, 0, 1]), potentials.StudentT(3.0, np.zeros(3), 1.0))
    smooth, heavy = (LatentLinearModel([GaussianFactor(dim=2), SiteFactor(rows, site)]) for site in sites)
    for name, first, second in (("a", smooth, heavy), ("b", heavy, smooth)):
        infer(first, checkpoint=tmp_path / name)
        with pytest.raises(ValueError, match="belongs to another model"):
            infer(second, checkpoint=tmp_path / name)
