"""A Gaussian posterior over the weights of a network, learnt from the iterates of SGD in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from latlin.factor.analysis.online import ScaledGradient
from latlin.factor.analysis.stream import FactorStream, OnlineEM, StreamRule
from latlin.numerics.linalg import LowRankNormal
from latlin.numerics.options import check_choice, resolve_choice
from latlin.numerics.rng import RandomState, generator

# --- Ways to learn a low-rank-plus-diagonal Gaussian from the iterates of SGD, one vector at a time.
#
# `FactorCollector` fits factor analysis online (Brownlie (2021), chapter 3, corrected). `DiagonalCollector` and
# `DeviationCollector` are the baselines SWAG-diagonal and SWAG: the running mean and variance of the iterates, and
# the last K deviations D̂ from the running mean, Σ = ½(diag(variance) + D̂D̂ᵀ/(K − 1)).


# --- Between a module's parameters and one long float32 vector.

Vector = NDArray[np.float32]


class Layout:
    """Which parameters make up the vector, in which order and shape.

    Shared (tied) parameters count once. `names` picks a subset, by exact name or by a prefix that ends at a dot.
    """

    def __init__(self, module: nn.Module, names: Sequence[str] | None = None) -> None:
        known = dict(module.named_parameters())
        if not known:
            raise ValueError(f"{type(module).__name__} has no parameters")
        chosen = list(known) if names is None else [n for n in known if _matches(n, names)]
        unknown = [name for name in names or () if not any(_matches(n, [name]) for n in known)]
        if unknown:
            raise ValueError(f"parameters must name parameters of the module, got {unknown}; it has {list(known)}")
        self.shapes = {name: tuple(known[name].shape) for name in chosen}
        self.dim = sum(known[name].numel() for name in chosen)

    def read(self, module: nn.Module) -> Vector:
        """The chosen parameters of `module` as one vector (a copy)."""
        known = self._check(module)
        parts = [known[name].detach().reshape(-1).to("cpu", torch.float32) for name in self.shapes]
        return torch.cat(parts).numpy()

    def write(self, module: nn.Module, vector: NDArray[Any]) -> None:
        """Put a vector into the chosen parameters of `module`, in place."""
        known = self._check(module)
        if vector.shape != (self.dim,):
            raise ValueError(f"vector must have shape ({self.dim},), got {vector.shape}")
        start = 0
        with torch.no_grad():
            for name in self.shapes:
                target = known[name]
                part = torch.from_numpy(np.array(vector[start : start + target.numel()], dtype=np.float32))
                target.copy_(part.reshape(target.shape))
                start += target.numel()

    def _check(self, module: nn.Module) -> dict[str, Any]:
        known = dict(module.named_parameters())
        for name, shape in self.shapes.items():
            if name not in known:
                raise ValueError(f"the module has no parameter {name!r}; this posterior was made for one that has")
            if tuple(known[name].shape) != shape:
                came = tuple(known[name].shape)
                raise ValueError(f"parameter {name!r} of the module has shape {came}, expected {shape}")
        return known


def _matches(name: str, wanted: Sequence[str]) -> bool:
    return any(name == w or name.startswith(w.rstrip(".") + ".") for w in wanted)


Arrays = Mapping[str, NDArray[Any]]
LEAST_SHARE = 1e-10


class Collector(Protocol):
    """Learns from vectors; gives a density; can be put into arrays and back."""

    @property
    def count(self) -> int:
        """Vectors seen."""

    def update(self, vector: NDArray[np.float32]) -> None: ...

    def density(self) -> LowRankNormal: ...

    def arrays(self) -> dict[str, NDArray[Any]]: ...

    def restore(self, arrays: Arrays) -> None: ...


class DiagonalCollector:
    """Running mean and variance (Welford) of the vectors."""

    def __init__(self, dim: int, rank: int) -> None:
        self.count = 0
        self.mean = np.zeros(dim, dtype=np.float32)
        self.scatter = np.zeros(dim, dtype=np.float32)

    def update(self, vector: NDArray[np.float32]) -> None:
        self.count += 1
        old = vector - self.mean
        self.mean += old / self.count
        self.scatter += old * (vector - self.mean)

    def variance(self) -> NDArray[np.float32]:
        """Mean squared deviation, kept off zero where a weight never moved."""
        if self.count < 2:
            raise ValueError(f"a density needs at least 2 collected weight vectors, {self.count} came")
        variance = self.scatter / self.count
        return np.maximum(variance, max(LEAST_SHARE * float(variance.mean(dtype=np.float64)), 1e-30))

    def density(self) -> LowRankNormal:
        return LowRankNormal(self.mean, np.zeros((1, len(self.mean)), dtype=np.float32), self.variance())

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"mean": self.mean, "scatter": self.scatter, "count": np.array(self.count)}

    def restore(self, arrays: Arrays) -> None:
        self.mean, self.scatter = arrays["mean"].copy(), arrays["scatter"].copy()
        self.count = int(arrays["count"])


class DeviationCollector:
    """SWAG: running moments and the last `rank` deviations."""

    def __init__(self, dim: int, rank: int) -> None:
        if rank < 2:
            raise ValueError(f"method 'swag' needs rank of at least 2, got {rank}")
        self.moments = DiagonalCollector(dim, rank)
        self.deviations = np.zeros((rank, dim), dtype=np.float32)

    @property
    def count(self) -> int:
        return self.moments.count

    def update(self, vector: NDArray[np.float32]) -> None:
        row = self.count % len(self.deviations)
        self.moments.update(vector)
        self.deviations[row] = vector - self.moments.mean

    def density(self) -> LowRankNormal:
        half = 0.5 * self.moments.variance()
        kept = min(self.count, len(self.deviations))
        scale = np.float32(1.0 / np.sqrt(2.0 * (kept - 1)))
        return LowRankNormal(self.moments.mean, scale * self.deviations[:kept], half)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self.moments.arrays() | {"deviations": self.deviations}

    def restore(self, arrays: Arrays) -> None:
        self.moments.restore(arrays)
        self.deviations = arrays["deviations"].copy()


class FactorCollector:
    """Factor analysis of the stream of vectors by one of its online rules."""

    def __init__(self, dim: int, rank: int, rule: StreamRule) -> None:
        self.stream = FactorStream(dim, rank, rule, dtype=np.float32)

    @property
    def count(self) -> int:
        return self.stream.count

    def update(self, vector: NDArray[np.float32]) -> None:
        self.stream.update(vector)

    def density(self) -> LowRankNormal:
        return self.stream.density()

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self.stream.arrays()

    def restore(self, arrays: Arrays) -> None:
        self.stream.restore(arrays)


def online_em(dim: int, rank: int) -> FactorCollector:
    """Factor analysis by online EM."""
    return FactorCollector(dim, rank, OnlineEM())


def gradient(dim: int, rank: int) -> FactorCollector:
    """Factor analysis by online gradient ascent."""
    return FactorCollector(dim, rank, ScaledGradient())


METHODS: dict[str, Callable[[int, int], Collector]] = {
    "online-em": online_em,
    "gradient": gradient,
    "swag-diag": DiagonalCollector,
    "swag": DeviationCollector,
}


# --- Running a network over a loader, and leaving it as it was.


Activation = Callable[[torch.Tensor], torch.Tensor]


def softmax(logits: torch.Tensor) -> torch.Tensor:
    """Class probabilities over the last axis."""
    return torch.softmax(logits, dim=-1)


def identity(outputs: torch.Tensor) -> torch.Tensor:
    """The outputs as they are."""
    return outputs


ACTIVATIONS: dict[str, Activation] = {"softmax": softmax, "sigmoid": torch.sigmoid, "identity": identity}


def resolve_activation(activation: str | Activation) -> Activation:
    """A named activation, or the callable given."""
    found: Activation = resolve_choice("activation", activation, ACTIVATIONS, "a callable", callable)
    return found


def inputs_of(batch: Any) -> torch.Tensor:
    """The inputs of a batch: the batch itself, or its first part."""
    return batch[0] if isinstance(batch, list | tuple) else batch


@contextmanager
def keep_state(module: nn.Module) -> Iterator[None]:
    """Parameters, buffers and the training mode of `module` are restored afterwards."""
    before = {name: value.detach().clone() for name, value in module.state_dict().items()}
    training = module.training
    try:
        yield
    finally:
        module.load_state_dict(before)
        module.train(training)


def compute_outputs(module: nn.Module, loader: Iterable[Any], activation: Activation) -> torch.Tensor:
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
        check_choice("method", method, METHODS)
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
        random, activate = generator(random_state), resolve_activation(activation)
        total = torch.zeros(())
        with keep_state(module):
            for _ in range(n_samples):
                self.sample(module, scale=scale, random_state=random)
                if bn_loader is not None:
                    self.update_bn(bn_loader, module)
                total = total + compute_outputs(module, loader, activate) / n_samples
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
