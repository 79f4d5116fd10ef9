"""One posterior from the fits at several hyperparameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from latlin.densities.mixture import Mixture
from latlin.hyper.learn import Learnt, spread_of
from latlin.hyper.optimum import STEP
from latlin.inference.diagnosis.log_joint import AveragedModel
from latlin.inference.posterior import EvidenceKind, Posterior

#: a posterior that would be wider by this factor is too narrow
NARROW = 1.1


def averaged_posterior(learnt: Learnt, *, normalised: bool | None = None) -> Posterior:
    """The posterior of w with the hyperparameters maximised (the one fit) or integrated (a mixture of the fits).

    Parameters
    ----------
    learnt : Learnt
        Whose components were fitted by an engine: each `fit` is a `Posterior`.
    normalised : bool, optional
        Whether everything integrated over has a density for its prior; what the space says unless given. Otherwise an
        integral has no absolute value, and its evidence is of the kind "none".
    """
    if not isinstance(learnt, Learnt):
        raise ValueError(f"learnt must be what maximise or integrate returned, got {learnt!r:.80}")
    parts: list[Posterior] = [component.fit for component in learnt.components]
    middle = int(np.argmax([component.share for component in learnt.components]))
    centre = parts[middle]
    if learnt.table.manner != "integrated":
        message = "; ".join(filter(None, (centre.message, learnt.message)))
        return replace(centre, message=message, caution=learnt.caution or _too_narrow(learnt, centre))
    proper = (learnt.space is None or learnt.space.normalised) if normalised is None else normalised
    shares = np.array([component.share for component in learnt.components])
    model = AveragedModel([p.model for p in parts], [c.log_weight for c in learnt.components], middle)
    return Posterior(
        model=model,
        density=Mixture(shares, tuple(part.density for part in parts)),
        log_evidence=learnt.log_evidence,
        evidence_kind=_kind(parts) if proper else "none",
        engine=centre.engine,
        converged=all(part.converged for part in parts),
        n_iter=sum(part.n_iter for part in parts),
        trace=centre.trace,
        elapsed=sum(part.elapsed for part in parts),
        message="; ".join(filter(None, (centre.message and f"at their best values {centre.message}", learnt.message))),
        bound_error=learnt.error + max(part.bound_error for part in parts),
        caution=learnt.caution,
    )


def _too_narrow(learnt: Learnt, centre: Posterior) -> tuple[str, str] | None:
    """A word where the uncertainty of maximised hyperparameters would widen the posterior by more than a tenth.

    With the covariance C of the coordinates u, to first order the mean of w moves by J = ∂m/∂u and the logarithm of a
    variance by g, and the posterior of u is centred Cb from the optimum of the numbers, b = ∂ log|dx/du|/∂u: the
    variance v of a coordinate of w becomes v exp(gᵀCb + ½gᵀCg) + JCJᵀ.
    """
    inside = [j for j, pair in enumerate(learnt.sides) if learnt.optimum.inside[j] and None not in pair]
    if learnt.space is None or learnt.hessian is None or not inside or not np.all(centre.variance > 0.0):
        return None
    spread = spread_of(learnt.hessian[np.ix_(inside, inside)])
    pairs = [learnt.sides[j] for j in inside]
    J = np.stack([ahead.mean - behind.mean for ahead, behind in pairs], axis=1) / (2.0 * STEP)
    g = np.stack([np.log(ahead.variance / behind.variance) for ahead, behind in pairs], axis=1) / (2.0 * STEP)
    bend = np.array([learnt.space.members[j].bend(float(learnt.optimum.u[j])) for j in inside])
    wider = np.exp(g @ spread @ bend + 0.5 * np.einsum("dj,jk,dk->d", g, spread, g))
    wider += np.einsum("dj,jk,dk->d", J, spread, J) / centre.variance
    worst = int(np.argmax(wider))
    if wider[worst] < NARROW**2:
        return None
    more = 100.0 * (np.sqrt(wider[worst]) - 1.0)
    name = f"coordinate {worst}" if centre.names is None else repr(centre.names[worst])
    return (
        "rough",
        f"hyperparameters are maximised, and their own uncertainty would make the sd of {name} about "
        f"{more:.0f} % larger: integrate over them",
    )


def _kind(parts: list[Posterior]) -> EvidenceKind:
    """A lower bound stays one, up to the error of the quadrature; nothing else is exact after it."""
    kinds = {part.evidence_kind for part in parts}
    if "none" in kinds:
        return "none"
    return "lower bound" if kinds <= {"lower bound", "exact"} and "lower bound" in kinds else "approximation"
