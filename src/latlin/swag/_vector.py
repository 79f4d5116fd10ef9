"""Between a module's parameters and one long float32 vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

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
