"""Posteriors of engines that may not apply to a model."""

from __future__ import annotations

from latlin import LatentLinearModel, Posterior, infer


def attempt(model: LatentLinearModel, engine: str) -> Posterior | None:
    """The posterior, or nothing where the engine says that it does not apply."""
    try:
        return infer(model, engine)
    except ValueError:
        return None
