"""What every way to a full Gaussian KL optimum gives, and the sentence when there is no place to start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from latlin.densities.gaussian import Gaussian
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.model import LatentLinearModel
from latlin.inference.posterior import Posterior
from latlin.numerics.ascent import Ascent, Checkpoint, Rules

NOWHERE = (
    "no start gives a finite bound: rescale the columns of H, pass start=, or use engine 'ep' if a site is −∞ somewhere"
)
#: accelerated steps before another way is tried
QUICK = 60


class Asked(NamedTuple):
    """What a fit is asked for: the model, where to start, when to stop, what to show and where to keep the state."""

    model: LatentLinearModel
    start: Posterior | None
    rules: Rules
    verbose: bool
    checkpoint: Checkpoint | None

    @property
    def quickly(self) -> Asked:
        """The same for a few steps, after which another way may be better."""
        return self._replace(rules=replace(self.rules, max_iter=min(QUICK, self.rules.max_iter)))


class FullFit(NamedTuple):
    """The ascent, the Gaussian it ended at with its bound, and the stand-ins of the sites."""

    ascent: Ascent[Any]
    density: Gaussian
    bound: float
    sites: SiteParameters


class Way(Protocol):
    """A way to the optimum."""

    def fit(self, asked: Asked) -> FullFit: ...
