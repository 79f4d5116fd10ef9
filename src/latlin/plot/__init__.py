"""Floor 4: figures with matplotlib. Axes in (or None for new ones), axes out."""

from latlin.plot._additive import curve, densities, field, shrinkage
from latlin.plot._calibration import calibration_ranks, pit, reliability
from latlin.plot._fits import evidence, ladder, trace
from latlin.plot._latents import clusters, loadings, process
from latlin.plot._posteriors import forest, intervals, marginals

__all__ = [
    "calibration_ranks",
    "clusters",
    "curve",
    "densities",
    "evidence",
    "field",
    "forest",
    "intervals",
    "ladder",
    "loadings",
    "marginals",
    "pit",
    "process",
    "reliability",
    "shrinkage",
    "trace",
]
