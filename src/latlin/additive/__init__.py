"""Floor 3½: hierarchical and additive models in one line, from a formula or from terms."""

from latlin.additive.ar1 import AR1
from latlin.additive.besag import BYM2, Besag
from latlin.additive.fixed import Fixed
from latlin.additive.group import Group
from latlin.additive.lattice import Lattice
from latlin.additive.map import Map
from latlin.additive.model import AdditiveModel
from latlin.additive.random_walk import RandomWalk
from latlin.additive.seasonal import Seasonal
from latlin.additive.smooth import Smooth
from latlin.additive.spline import Spline

__all__ = [
    "AR1",
    "BYM2",
    "AdditiveModel",
    "Besag",
    "Fixed",
    "Group",
    "Lattice",
    "Map",
    "RandomWalk",
    "Seasonal",
    "Smooth",
    "Spline",
]
