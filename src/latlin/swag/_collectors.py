"""Ways to learn a low-rank-plus-diagonal Gaussian from the iterates of SGD, one vector at a time.

`FactorCollector` fits factor analysis online (Brownlie (2021), chapter 3, corrected). `DiagonalCollector` and
`DeviationCollector` are the baselines SWAG-diagonal and SWAG: the running mean and variance of the iterates, and
the last K deviations D̂ from the running mean, Σ = ½(diag(variance) + D̂D̂ᵀ/(K − 1)).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from latlin.factor.analysis.online import ScaledGradient
from latlin.factor.analysis.stream import FactorStream, OnlineEM, StreamRule
from latlin.numerics.linalg import LowRankNormal

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
