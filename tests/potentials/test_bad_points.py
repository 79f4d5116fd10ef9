"""Points, ends of intervals and options of a wrong kind are named, by those that a search of bad inputs found."""

import numpy as np
import pytest

from latlin import covariances, potentials
from latlin.additive import Lattice
from latlin.gp import Inducing

BAD = {"an object": object(), "a dict": {}, "too large": [10**400, 0.0], "a dict inside": [{}, 0.0]}
SITES = [potentials.BetaBinomial([1.0, 2.0], 4.0, 3.0), potentials.GeneralisedPoisson([1.0, 2.0], 0.1)]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("site", SITES, ids=lambda site: type(site).__name__)
@pytest.mark.parametrize("method", ["log_density", "derivatives"])
def test_points(site, method, bad):
    with pytest.raises(ValueError, match=r"\bx must"):
        getattr(site, method)(BAD[bad])


def test_ends_of_intervals_are_no_dates():
    with pytest.raises(ValueError, match="upper must hold numbers"):
        potentials.LogLogistic([1.0], 1.0, [3], upper=np.array(["2020-01-01"], "datetime64[D]"))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda bad: covariances.Subspace(1, inner=bad), "inner"),
        (lambda bad: Lattice("a", "b", order=bad), "order"),
        (lambda bad: Inducing(bad), "n_inducing"),
    ],
)
def test_options_that_are_arrays(make, name):
    with pytest.raises(ValueError, match=name):
        make(np.array([1.0, 2.0]))
