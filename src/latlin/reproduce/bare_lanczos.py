"""Local bounds with Lanczos variances as Challis (2013), §3.8 has them: none off the Krylov space.

`latlin.engines.LocalBound` gives the complement of the Krylov space the mean of the precisions that are left. Here it
has next to no variance, which tests what that is worth to a design.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from latlin.inference.forms.sites import SiteParameters
from latlin.inference.forms.structured import structured_form
from latlin.inference.local_bound.double_loop import maximise_local_bound
from latlin.inference.local_bound.lanczos_family import LanczosFamily, LowRank
from latlin.inference.model import LatentLinearModel
from latlin.inference.posterior import Posterior
from latlin.numerics.ascent import Rules

Array = NDArray[np.float64]
#: precision off the Krylov space, in coordinates where that of a coordinate is about one
SURE = 1e12


class BareFamily(LanczosFamily):
    """Lanczos variances without any off the Krylov space."""

    def precision(self, gamma: Array) -> LowRank:
        return super().precision(gamma)._replace(outside=SURE)


@dataclass(frozen=True)
class BareLanczos:
    """The engine; `rank` Lanczos steps and `outer` loops, as many as in the source."""

    name: ClassVar[str] = "lvb"
    rank: int = 80
    outer: int = 7

    def run(
        self,
        model: LatentLinearModel,
        *,
        start: Posterior | None = None,
        verbose: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Posterior:
        """The Gaussian of the local bounds; its evidence is none."""
        started = time.perf_counter()
        family = BareFamily(structured_form(model), self.rank, accuracy=1e-6)
        first = family.first() if start is None else family.inherited(start.density)
        rules = Rules(gradient_tol=1e-2, objective_tol=np.inf, max_iter=self.outer)
        ascent = maximise_local_bound(family, first, rules, "bare local bound", verbose, warn=False)
        parameters = SiteParameters(ascent.state.gamma, ascent.state.nu)
        return Posterior(
            model=model,
            density=family.density(parameters, ascent.state.u),
            log_evidence=float("nan"),
            evidence_kind="none",
            engine=self.name,
            converged=ascent.converged,
            n_iter=ascent.n_iter,
            trace=ascent.trace,
            elapsed=time.perf_counter() - started,
            message=ascent.message,
            sites=parameters,
        )
