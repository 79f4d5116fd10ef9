"""Floor 4: figures with matplotlib, one a file. Axes in (or None for new ones), axes out."""

from latlin.plot._additive import curve, densities, field, shrinkage
from latlin.plot._calibration import calibration_ranks, pit, reliability
from latlin.plot._fits import evidence, ladder, trace
from latlin.plot._posteriors import forest, intervals, marginals

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
