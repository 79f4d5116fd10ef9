"""One posterior from the fits at several hyperparameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from latlin.densities.mixture import Mixture
from latlin.hyper.learn import Learnt
from latlin.inference.averaged import AveragedModel
from latlin.inference.model import in_memory
from latlin.inference.posterior import EvidenceKind, Posterior


def averaged_posterior(learnt: Learnt, *, normalised: bool = True) -> Posterior:
    """The posterior of w with the hyperparameters maximised (the one fit) or integrated (a mixture of the fits).

    Parameters
    ----------
    learnt : Learnt
        Whose components were fitted by an engine: each `fit` is a `Posterior`.
    normalised : bool
        Whether the priors are densities; an integral over others has no absolute value, so that its kind is "none".
    """
    parts: list[Posterior] = [component.fit for component in learnt.components]
    middle = int(np.argmax([component.share for component in learnt.components]))
    centre = parts[middle]
    message = "; ".join(filter(None, (centre.message, learnt.message)))
    if learnt.table.manner != "integrated":
        return replace(centre, message=message, caution=learnt.caution)
    shares = np.array([component.share for component in learnt.components])
    model = AveragedModel([in_memory(p.model) for p in parts], [c.log_weight for c in learnt.components], middle)
    return Posterior(
        model=model,
        density=Mixture(shares, tuple(part.density for part in parts)),
        log_evidence=learnt.log_evidence,
        evidence_kind=_kind(parts) if normalised else "none",
        engine=centre.engine,
        converged=all(part.converged for part in parts),
        n_iter=sum(part.n_iter for part in parts),
        trace=centre.trace,
        elapsed=sum(part.elapsed for part in parts),
        message=message,
        bound_error=learnt.error + max(part.bound_error for part in parts),
        caution=learnt.caution,
    )


def _kind(parts: list[Posterior]) -> EvidenceKind:
    """A lower bound stays one, up to the error of the quadrature; nothing else is exact after it."""
    kinds = {part.evidence_kind for part in parts}
    if "none" in kinds:
        return "none"
    return "lower bound" if kinds <= {"lower bound", "exact"} and "lower bound" in kinds else "approximation"
