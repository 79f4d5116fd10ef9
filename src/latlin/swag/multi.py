"""A mixture of weight posteriors from independently trained runs (MultiSWAG), uniform or with learnt weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp
from torch import nn

from latlin.numerics.rng import RandomState, generator
from latlin.swag.factor_posterior import Activation, FactorPosterior


class MultiFactorPosterior:
    """Σ_c weight_c q_c(θ), a mixture of `FactorPosterior`s of the same module.

    Parameters
    ----------
    posteriors : sequence of FactorPosterior
        One a run.
    weights : array-like or None
        Non-negative, rescaled to sum to one; uniform by default. `fit_weights` learns them.
    """

    def __init__(self, posteriors: Sequence[FactorPosterior], weights: Any = None) -> None:
        if not posteriors:
            raise ValueError("posteriors must hold at least one FactorPosterior, got none")
        first = posteriors[0].layout.shapes
        for i, other in enumerate(posteriors):
            if other.layout.shapes != first:
                raise ValueError(f"posteriors must cover the same parameters; number {i} differs from the first")
        self.posteriors = list(posteriors)
        self.weights = _normalised(np.ones(len(posteriors)) if weights is None else weights, len(posteriors))

    def sample(self, module: nn.Module, *, scale: float = 1.0, random_state: RandomState = None) -> None:
        """Choose a run by its weight and write a draw of its posterior into `module`."""
        random = generator(random_state)
        chosen = int(random.choice(len(self.posteriors), p=self.weights))
        self.posteriors[chosen].sample(module, scale=scale, random_state=random)

    def update_bn(self, loader: Iterable[Any], module: nn.Module) -> None:
        """Recompute the batch-norm statistics of `module` for its present weights."""
        self.posteriors[0].update_bn(loader, module)

    def predict(
        self,
        module: nn.Module,
        loader: Iterable[Any],
        n_samples: int = 30,
        *,
        scale: float = 1.0,
        activation: str | Activation = "softmax",
        bn_loader: Iterable[Any] | None = None,
        random_state: RandomState = None,
    ) -> torch.Tensor:
        """The weighted average of every run's prediction with `n_samples` draws each; see `FactorPosterior`."""
        random = generator(random_state)
        options: dict[str, Any] = {"scale": scale, "activation": activation, "bn_loader": bn_loader}
        parts = [
            weight * posterior.predict(module, loader, n_samples, random_state=random, **options)
            for weight, posterior in zip(self.weights.tolist(), self.posteriors, strict=True)
        ]
        return torch.stack(parts).sum(dim=0)

    def fit_weights(
        self,
        module: nn.Module,
        loader: Iterable[Any],
        labels: Any,
        n_samples: int = 30,
        *,
        max_iter: int = 1000,
        **options: Any,
    ) -> NDArray[np.float64]:
        """Weights that maximise Σ_n log Σ_c weight_c p_c(label_n) on validation data, by EM (it is concave).

        `labels` are class indices; `options` go to `predict`.
        """
        targets = torch.as_tensor(labels).reshape(-1, 1).long()
        random = generator(options.pop("random_state", None))
        likelihoods = np.stack(
            [
                p.predict(module, loader, n_samples, random_state=random, **options).gather(1, targets)[:, 0].numpy()
                for p in self.posteriors
            ],
            axis=1,
        ).astype(np.float64)
        self.weights = mixture_weights(likelihoods, self.weights, max_iter)
        return self.weights

    def log_density(self, vector: Any) -> float:
        """log Σ_c weight_c q_c(vector)."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.weights)
        return float(logsumexp(logs + np.array([p.log_density(vector) for p in self.posteriors])))

    def state_dict(self) -> dict[str, Any]:
        """The states of all runs and their weights."""
        return {"weights": self.weights.tolist(), "posteriors": [p.state_dict() for p in self.posteriors]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        if len(state["posteriors"]) != len(self.posteriors):
            raise ValueError(f"the state has {len(state['posteriors'])} runs, this mixture {len(self.posteriors)}")
        for posterior, part in zip(self.posteriors, state["posteriors"], strict=True):
            posterior.load_state_dict(part)
        self.weights = _normalised(state["weights"], len(self.posteriors))


def mixture_weights(
    likelihoods: NDArray[np.float64], weights: NDArray[np.float64], max_iter: int
) -> NDArray[np.float64]:
    """EM for the weights of a mixture with known likelihoods (n, C); no entry of the start may be zero to grow."""
    likelihoods = np.maximum(likelihoods, 1e-300)
    for _ in range(max_iter):
        joint = likelihoods * weights
        new = (joint / joint.sum(axis=1, keepdims=True)).mean(axis=0)
        if np.abs(new - weights).max() < 1e-10:
            return new
        weights = new
    return weights


def _normalised(weights: Any, n: int) -> NDArray[np.float64]:
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != (n,) or not (weights >= 0.0).all() or not 0.0 < weights.sum() < np.inf:
        raise ValueError(f"weights must be {n} non-negative numbers, not all zero, got {weights}")
    return weights / weights.sum()
