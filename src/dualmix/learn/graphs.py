"""Training passes as CUDA graphs: one launch for a whole forward or backward pass. Off by default, untested on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

SHAPES = 8
"""Shapes of batches that are captured; further ones, as an open stream may bring, run as they would without graphs."""


class Graphs:
    """A network whose training passes are captured at the first batch of a shape and replayed from then on.

    A captured pass has one place for its images, one for its features and one for its slopes. It is therefore replayed
    only while no earlier pass waits for its backward pass, with the weights it was captured with (not those of a
    virtual step or of gradients a sample) and with batch-norm in training; everything else runs as without graphs.

    Parameters
    ----------
    network
        Images to features; its weights are changed in place from now on.
    capture
        Turns a module and its arguments into one that replays.
    """

    def __init__(self, network: nn.Module, capture: Callable[..., Any] | None = None) -> None:
        self.network = network
        self.capture: Callable[..., Any] = capture or torch.cuda.make_graphed_callables
        self.weights = list(network.parameters())
        self.places = [weight.data_ptr() for weight in self.weights]
        self.captured: dict[tuple[int, ...], Callable[[Tensor], Tensor]] = {}
        self.waiting = False

    def __call__(self, x: Tensor) -> Tensor:
        """Return the features of images."""
        if not self._may_replay(x):
            features: Tensor = self.network(x)
            return features
        if x.shape not in self.captured:
            self.captured[x.shape] = self._captured(x)
        self._own_slopes()
        # A copy, since the next replay overwrites the place of the features.
        features = self.captured[x.shape](x).clone()
        self.waiting = True
        features.register_hook(self._answered)
        return features

    def _may_replay(self, x: Tensor) -> bool:
        return (
            torch.is_grad_enabled()
            and not self.waiting
            and not x.requires_grad
            and all(module.training for module in self.network.modules())
            and all(
                now is then
                for now, then in zip(self.network.parameters(), self.weights, strict=True)
            )
            and [weight.data_ptr() for weight in self.weights] == self.places
            and (x.shape in self.captured or len(self.captured) < SHAPES)
        )

    def _captured(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        """Capture the passes of a shape; the rounds that warm up leave no trace in batch-norm's statistics."""
        kept = [buffer.clone() for buffer in self.network.buffers()]
        found: Callable[[Tensor], Tensor] = self.capture(_Shell(self.network), (x.clone(),))
        for buffer, value in zip(self.network.buffers(), kept, strict=True):
            buffer.copy_(value)
        return found

    def _own_slopes(self) -> None:
        """Give weights without a gradient one of zeros: autograd would take the place of the slopes itself for it."""
        for weight in self.weights:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)

    def _answered(self, _: Tensor) -> None:
        self.waiting = False


class _Shell(nn.Module):
    """A module of its own for each capture, since a capture replaces its module's forward."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.network(x)
        return features
