"""Running a network over a loader, and leaving it as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

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
