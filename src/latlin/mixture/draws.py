"""Draws of the parameters of a mixture from q(π) q(θ)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sklearn.utils.validation import check_is_fitted

from latlin.diagnostics.inference_data import inference_data
from latlin.numerics.linalg import Array
from latlin.numerics.options import whole
from latlin.numerics.reported import Reported
from latlin.numerics.rng import RandomState, generator


class MixtureDraws(NamedTuple):
    """Draws of π, μ and Λ⁻¹: the first axis counts them, the others are those of the fitted attributes."""

    weights: Array
    means: Array
    covariances: Array


class ParameterDraws(Reported):
    """What a fitted mixture says of its parameters by draws."""

    if TYPE_CHECKING:
        mixture_: Any
        posterior_: Any
        random_state: RandomState
        n_features_in_: int

    def sample_posterior(self, n_samples: int = 1, random_state: RandomState = None) -> MixtureDraws:
        """Draws of weights, means and covariances from the posterior, one per entry of the first axis of each."""
        check_is_fitted(self, "posterior_")
        rng = generator(self.random_state if random_state is None else random_state)
        count, belief = whole("n_samples", n_samples, 1), self.posterior_
        weights = self.mixture_.weights.draw_weights(belief.weights, count, rng)
        return MixtureDraws(weights, *self.mixture_.components.draw_parameters(belief.components, count, rng))

    def to_arviz(self, n_samples: int = 1000, random_state: RandomState = None) -> Any:
        """Draws as an `arviz.InferenceData` (of ArviZ 1, a `DataTree`); needs ArviZ."""
        draws = self.sample_posterior(n_samples, random_state)
        names = getattr(self, "feature_names_in_", None)
        features = [f"x{j}" for j in range(self.n_features_in_)] if names is None else [str(name) for name in names]
        coords = {"component": range(draws.weights.shape[1]), "feature": features}
        posterior = {name: values[None] for name, values in draws._asdict().items()}
        return inference_data({"posterior": posterior}, coords, {"weights": ["component"], "means": list(coords)})
