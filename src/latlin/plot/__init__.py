"""Floor 4: figures with matplotlib. Axes in (or None for new ones), axes out."""

from latlin.plot._fits import calibration_ranks, evidence, ladder, pit, reliability, trace
from latlin.plot._latents import clusters, loadings, process
from latlin.plot._posteriors import curve, densities, field, forest, intervals, marginals, shrinkage

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
