"""A Gaussian posterior over the weights of a network, learnt from the iterates of SGD in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from latlin.numerics.linalg import LowRankNormal
from latlin.numerics.rng import RandomState, generator
from latlin.swag._collectors import METHODS, Collector, Layout

# --- Running a network over a loader, and leaving it as it was.


Activation = Callable[[torch.Tensor], torch.Tensor]


def softmax(logits: torch.Tensor) -> torch.Tensor:
    """Class probabilities over the last axis."""
    return torch.softmax(logits, dim=-1)


def identity(outputs: torch.Tensor) -> torch.Tensor:
    """The outputs as they are."""
    return outputs


ACTIVATIONS: dict[str, Activation] = {"softmax": softmax, "sigmoid": torch.sigmoid, "identity": identity}


def resolve(activation: str | Activation) -> Activation:
    """A named activation, or the callable given."""
    if callable(activation):
        return activation
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be callable or one of {sorted(ACTIVATIONS)}, got {activation!r}")
    return ACTIVATIONS[activation]


def inputs_of(batch: Any) -> torch.Tensor:
    """The inputs of a batch: the batch itself, or its first part."""
    return batch[0] if isinstance(batch, list | tuple) else batch


@contextmanager
def kept(module: nn.Module) -> Iterator[None]:
    """Parameters, buffers and the training mode of `module` are restored afterwards."""
    before = {name: value.detach().clone() for name, value in module.state_dict().items()}
    training = module.training
    try:
        yield
    finally:
        module.load_state_dict(before)
        module.train(training)


def outputs(module: nn.Module, loader: Iterable[Any], activation: Activation) -> torch.Tensor:
    """Activated outputs of the module in evaluation mode over all batches."""
    module.eval()
    with torch.no_grad():
        return torch.cat([activation(module(inputs_of(batch))) for batch in loader])


def refresh_batch_norm(module: nn.Module, loader: Iterable[Any]) -> None:
    """Recompute the running statistics of batch-norm layers for the present weights."""
    with torch.no_grad():
        torch.optim.swa_utils.update_bn(loader, module)


def refuse_stale_statistics(module: nn.Module, loader: Iterable[Any] | None) -> None:
    """A network with batch-norm statistics needs training inputs: those it has belong to other weights."""
    layers = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    if layers and loader is None:
        raise ValueError(
            f"the network has {len(layers)} batch-norm layer(s), whose statistics belong to other weights than those "
            "drawn: give bn_loader, batches of training inputs"
        )


class FactorPosterior:
    """N(θ̄, FFᵀ + Ψ) over the weights of a module, from its iterates during training.

    Parameters
    ----------
    module : torch.nn.Module
        Gives names and shapes; it is not kept.
    rank : int
        Number of factors K. Memory is K + 3 copies of the weights, and 2K + 1 during the warm-up.
    method : {"online-em", "gradient", "swag-diag", "swag"}
        Factor analysis by online EM or gradient ascent, or the baselines SWAG-diagonal and SWAG.
    parameters : sequence of str or None
        Names (or prefixes up to a dot) of the parameters to cover; all by default.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Linear(3, 2)
    >>> posterior = FactorPosterior(net, rank=2, method="swag-diag")
    >>> for _ in range(5):
    ...     with torch.no_grad():
    ...         net.weight += 0.1 * torch.randn(2, 3)
    ...     posterior.collect(net)
    >>> posterior.count
    5
    """

    def __init__(
        self,
        module: nn.Module,
        rank: int = 10,
        *,
        method: str = "online-em",
        parameters: Sequence[str] | None = None,
    ) -> None:
        if method not in METHODS:
            raise ValueError(f"method must be one of {sorted(METHODS)}, got {method!r}")
        self.method, self.rank = method, rank
        self.layout = Layout(module, parameters)
        self._collector: Collector = METHODS[method](self.layout.dim, rank)

    @property
    def count(self) -> int:
        """Weight vectors collected."""
        return self._collector.count

    @property
    def density(self) -> LowRankNormal:
        """The Gaussian learnt so far: mean (the SWA average), loadings (K×d), noise variances."""
        return self._collector.density()

    def collect(self, module: nn.Module) -> None:
        """Learn from the present weights of `module`: after an epoch, or every few steps."""
        vector = self.layout.read(module)
        if not np.isfinite(vector.sum(dtype=np.float64)):
            raise ValueError("the weights of the module are not finite: training has diverged")
        self._collector.update(vector)

    def draw(self, *, scale: float = 1.0, random_state: RandomState = None) -> NDArray[np.float32]:
        """One weight vector θ̄ + scale·(Fh + Ψ^{½}ε)."""
        return self.density.sample(1, generator(random_state), scale=scale)[0].astype(np.float32)

    def sample(self, module: nn.Module, *, scale: float = 1.0, random_state: RandomState = None) -> None:
        """Write a draw into `module`. Batch-norm statistics need `update_bn` afterwards."""
        self.layout.write(module, self.draw(scale=scale, random_state=random_state))

    def write_mean(self, module: nn.Module) -> None:
        """Write the mean of the iterates, the SWA solution, into `module`."""
        self.layout.write(module, np.asarray(self.density.mean))

    def update_bn(self, loader: Iterable[Any], module: nn.Module) -> None:
        """Recompute the batch-norm statistics of `module` for its present weights, from the training inputs."""
        refresh_batch_norm(module, loader)

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
        """Average the activated outputs over draws of the weights; `module` is left as it was.

        Parameters
        ----------
        module : torch.nn.Module
        loader : iterable of batches
            Inputs, or tuples whose first part is the inputs; the same order every time.
        n_samples : int
            Draws of the weights.
        scale : float
            Factor on the posterior's standard deviations.
        activation : {"softmax", "sigmoid", "identity"} or callable
            From outputs to what is averaged.
        bn_loader : iterable or None
            Training inputs from which batch-norm statistics are recomputed for each draw; a network with batch-norm
            layers needs them.

        Returns
        -------
        torch.Tensor of shape (n, …)
        """
        if n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, got {n_samples}")
        refuse_stale_statistics(module, bn_loader)
        random, activate = generator(random_state), resolve(activation)
        total = torch.zeros(())
        with kept(module):
            for _ in range(n_samples):
                self.sample(module, scale=scale, random_state=random)
                if bn_loader is not None:
                    self.update_bn(bn_loader, module)
                total = total + outputs(module, loader, activate) / n_samples
        return total

    def log_density(self, vector: Any) -> float:
        """log N(vector | θ̄, FFᵀ + Ψ), every constant included, in O(dK²)."""
        vector = np.asarray(vector)
        if vector.shape != (self.layout.dim,):
            raise ValueError(f"vector must have shape ({self.layout.dim},), got {vector.shape}")
        return float(self.density.logpdf(vector[None])[0])

    def vector(self, module: nn.Module) -> NDArray[np.float32]:
        """The covered weights of `module` as one vector, for `log_density`."""
        return self.layout.read(module)

    def state_dict(self) -> dict[str, Any]:
        """Tensors, numbers and names from which `load_state_dict` goes on bit for bit; safe to `torch.save`."""
        arrays = {name: torch.from_numpy(np.array(value)) for name, value in self._collector.arrays().items()}
        shapes = {name: list(shape) for name, shape in self.layout.shapes.items()}
        return {"method": self.method, "rank": self.rank, "shapes": shapes, "arrays": arrays}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave for the same method, rank and parameters."""
        shapes = {name: tuple(shape) for name, shape in state["shapes"].items()}
        mine = (self.method, self.rank, self.layout.shapes)
        if (state["method"], state["rank"], shapes) != mine:
            raise ValueError(
                f"the state belongs to method {state['method']!r}, rank {state['rank']} and {len(shapes)} parameter(s) "
                f"of its own shapes; this posterior has {self.method!r}, {self.rank} and {len(self.layout.shapes)}"
            )
        self._collector.restore({name: value.numpy() for name, value in state["arrays"].items()})
