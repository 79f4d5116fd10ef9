"""Floor 4: figures with matplotlib, one a file. Axes in (or None for new ones), axes out."""

from latlin.plot._additive import curve, densities, field, pit, shrinkage
from latlin.plot._calibration_ranks import calibration_ranks
from latlin.plot._evidence import evidence
from latlin.plot._forest import forest
from latlin.plot._intervals import intervals
from latlin.plot._ladder import ladder
from latlin.plot._marginals import marginals
from latlin.plot._reliability import reliability
from latlin.plot._trace import trace

__all__ = [
    "calibration_ranks",
    "curve",
    "densities",
    "evidence",
    "field",
    "forest",
    "intervals",
    "ladder",
    "marginals",
    "pit",
    "reliability",
    "shrinkage",
    "trace",
]
