"""A family that says it is log-concave is so at every setting: its curvature on a grid is never positive."""

import numpy as np
import pytest

from latlin import potentials as p

X = np.linspace(-30.0, 30.0, 3001)
COUNTS, SHARES, TIMES = (0.0, 1.0, 7.0), (0.05, 0.6), (0, 1, 2, 3)
SETTINGS = [
    *(p.Binomial(k, 5, link) for k in (0, 2, 5) for link in ("logit", "probit", "cloglog")),
    *(p.NegativeBinomial(y, a, kind) for y in COUNTS for a in (0.05, 1.0, 5.0) for kind in ("quadratic", "linear")),
    *(p.GeneralisedPoisson(y, clustering) for y in COUNTS for clustering in (0.05, 0.5, 0.95)),
    *(
        p.ZeroInflated(base, share)
        for y in COUNTS
        for base in (p.Poisson(y), p.NegativeBinomial(y, 0.7))
        for share in SHARES
    ),
    *(p.Hurdle(base, share) for y in COUNTS for base in (p.Poisson(y), p.NegativeBinomial(y, 0.7)) for share in SHARES),
    *(family(1.5, shape) for family in (p.Gamma, p.InverseGaussian, p.LogNormal) for shape in (0.3, 1.0, 20.0)),
    *(p.Tweedie(y, power, 1.0) for y in (0.0, 2.0) for power in (1.1, 1.5, 1.9)),
    *(p.Beta(y, precision) for y in (0.01, 0.5, 0.9) for precision in (0.3, 2.0, 50.0)),
    *(p.BetaBinomial(k, 5, precision) for k in (0, 2, 5) for precision in (0.3, 4.0, 50.0)),
    *(family(2.0, kind, shape, 5.0) for family in (p.Weibull, p.LogLogistic) for kind in TIMES for shape in (0.5, 4.0)),
    *(p.Exponential(2.0, kind, 5.0) for kind in TIMES),
    p.AsymmetricLaplace(0.8),
    p.Huber(),
    p.Horseshoe(),
    p.SpikeAndSlab(0.3, 2.0, 0.1),
    p.Truncated(p.Gaussian(1.0), low=0.0),
]


@pytest.mark.parametrize("block", SETTINGS, ids=repr)
def test_what_is_said_to_be_log_concave_is(block):
    with np.errstate(all="ignore"):
        value, bend = block.log_density(X), block.derivatives(X).second
    seen = np.isfinite(value) & (value > -1e12)
    assert seen.sum() > 300
    if block.log_concave:
        assert bend[seen].max() < 1e-9
