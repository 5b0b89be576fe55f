"""Random layers and networks held against torch in float64; the fuzz of the engine and its quick
tests share this.
"""

from __future__ import annotations

import copy
import ctypes
import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dualmix import engine
from dualmix.learn.backbones import ReducedResNet18

TIMES = 20
"""Our error may be so many times torch's own float32 error."""
LEAST = 3e-7
"""Torch's error is not taken for less than a few roundings: on tiny layers it may be 0."""


def address(tensor: Tensor | None) -> ctypes.c_void_p | None:
    return None if tensor is None else ctypes.c_void_p(tensor.data_ptr())


def largest(tensor: Tensor) -> float:
    return float(tensor.detach().abs().max())


def error(found: Tensor, true: Tensor) -> float:
    top = largest(true)
    return largest(found.detach().double() - true.detach()) / top if top else 0.0


def compare(made: dict[str, tuple[Tensor, Tensor, Tensor]]) -> dict[str, float]:
    """Return our error of each part as a multiple of torch's.

    A part may be a single number, which torch may hit by luck: its error counts as at least the
    median of its parts."""
    assert all(each[0].isfinite().all() for each in made.values())
    theirs = {name: error(each[1], each[2]) for name, each in made.items()}
    least = max(LEAST, float(np.median([*theirs.values()]))) if theirs else LEAST
    return {name: error(each[0], each[2]) / max(theirs[name], least) for name, each in made.items()}


@dataclass(frozen=True)
class Convolution:
    n: int
    c: int
    h: int
    w: int
    k: int
    size: int
    stride: int

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Convolution:
        while True:
            n, c, k = (int(2 ** rng.uniform(0, top)) for top in (7, 6, 6))
            h, w = (int(side) for side in rng.integers(8, 97, 2))
            made = cls(n, c, h, w, k, int(rng.choice([1, 3, 3])), int(rng.choice([1, 2])))
            if n * h * w * (c + k) < 400_000 and n * h * w * c * k < 6_000_000:
                return made

    def run(self, library: ctypes.CDLL, seed: int = 0) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
        """Return ours, torch's and the truth for output and both gradients."""
        g = torch.Generator().manual_seed(seed)
        x = torch.randn(self.n, self.c, self.h, self.w, generator=g)
        taps = torch.randn(self.k, self.c, self.size, self.size, generator=g)
        pad = self.size // 2
        high, wide = (math.ceil(side / self.stride) for side in (self.h, self.w))
        dy = torch.randn(self.n, self.k, high, wide, generator=g)
        y, dx, dtaps = torch.empty_like(dy), torch.empty_like(x), torch.empty_like(taps)
        numbers = (self.n, self.c, self.h, self.w, self.k, self.size, self.stride)
        tensors = (x, taps, dy, y, dx, dtaps)
        library.probe_convolution(*map(ctypes.c_int64, numbers), *map(address, tensors))
        answers = []
        for dtype in (torch.float32, torch.float64):
            a, b = (
                x.to(dtype, copy=True).requires_grad_(),
                taps.to(dtype, copy=True).requires_grad_(),
            )
            z = F.conv2d(a, b, None, self.stride, pad)
            answers.append([z, *torch.autograd.grad(z, (a, b), dy.to(dtype))])
        return dict(
            zip(
                ("output", "input", "taps"), zip((y, dx, dtaps), *answers, strict=True), strict=True
            )
        )


@dataclass(frozen=True)
class Norm:
    sizes: tuple[int, ...]
    c: int
    h: int
    w: int
    training: bool
    relu: bool
    add: bool

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Norm:
        sizes = tuple(int(size) for size in rng.integers(1, 12, rng.integers(1, 5)))
        h, w = (int(side) for side in rng.integers(4, 40, 2))
        return cls(
            sizes, int(rng.integers(1, 9)), h, w, *(bool(coin) for coin in rng.integers(0, 2, 3))
        )

    def run(self, library: ctypes.CDLL, seed: int = 0) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
        g = torch.Generator().manual_seed(seed)
        shape = (sum(self.sizes), self.c, self.h, self.w)
        x = torch.randn(shape, generator=g) * 2 + 3
        add = torch.randn(shape, generator=g) if self.add else None
        dy = torch.randn(shape, generator=g)
        scale, shift, mean, var = (torch.rand(self.c, generator=g) + 0.5 for _ in range(4))
        relu = self.relu or self.add
        answers = []
        for dtype in (torch.float32, torch.float64):
            a, s, b = (t.to(dtype, copy=True).requires_grad_() for t in (x, scale, shift))
            m, v = mean.to(dtype).clone(), var.to(dtype).clone()
            parts = [
                F.batch_norm(part, m, v, s, b, self.training, 0.1, 1e-5)
                for part in a.split(self.sizes)
            ]
            z = torch.cat(parts)
            z = z if add is None else z + add.to(dtype)
            # a pixel that a rounding may push over the kink of the ReLU takes no part
            near = z.detach().abs() < 1e-4
            kept = (answers[0][-1] if answers else torch.ones_like(near)) & ~near
            out = z.relu() if relu else z
            answers.append(
                [out, *torch.autograd.grad(out, (a, s, b), dy.to(dtype) * kept), m, v, kept]
            )
        if not torch.equal(answers[0][-1], answers[1][-1]):
            return {}
        gradient = dy * answers[1][-1]
        y, dx, ds, db = (
            torch.empty_like(x),
            torch.empty_like(x),
            torch.empty_like(scale),
            torch.empty_like(scale),
        )
        first = torch.tensor([0, *np.cumsum(self.sizes)], dtype=torch.int64)
        library.probe_norm(
            *map(ctypes.c_int64, (*shape, len(self.sizes))),
            address(first),
            ctypes.c_int64(self.training),
            ctypes.c_int64(relu),
            *map(address, (x, add, gradient, scale, shift, mean, var, y, dx, ds, db)),
        )
        ours = (y, dx, ds, db, mean, var)
        names = ("output", "input", "scale", "shift", "mean", "var")
        return dict(
            zip(names, zip(ours, *(answer[:-1] for answer in answers), strict=True), strict=True)
        )


@dataclass(frozen=True)
class Network:
    channels: int
    h: int
    w: int
    width: int
    sizes: tuple[int, ...]
    training: bool

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Network:
        most = int(
            rng.choice([4_000, 4_000, 60_000])
        )  # in small networks a ReLU is seldom close to its kink
        while True:
            sizes = tuple(int(size) for size in rng.integers(1, 5, rng.integers(1, 4)))
            h, w = (int(side) for side in rng.integers(8, 49, 2))
            made = cls(
                int(rng.integers(1, 5)),
                h,
                w,
                int(rng.integers(1, 21)),
                sizes,
                bool(rng.integers(0, 4)),
            )
            if sum(sizes) * h * w * made.width < most:
                return made

    def run(self, seed: int = 0) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
        """Return ours, torch's and the truth for features, all gradients and running statistics.

        The features are those of pixels far from the kink of every ReLU: gradients are compared
        only where no pre-activation of the float64 network is so close to 0 that a rounding may
        decide."""
        torch.manual_seed(seed)
        network = ReducedResNet18((self.channels, self.h, self.w), self.width)
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, a=math.sqrt(5))
            if isinstance(module, nn.BatchNorm2d):
                for tensor in (module.weight.data, module.running_var):
                    assert tensor is not None
                    tensor.uniform_(0.5, 1.5)
                nn.init.uniform_(module.bias, -0.3, 0.3)
        x = torch.rand(sum(self.sizes), self.channels, self.h, self.w)
        dy = torch.randn(len(x), network.features)
        networks = [
            copy.deepcopy(network).to(kind).train(self.training)
            for kind in (torch.float32, torch.float64)
        ]
        native = copy.deepcopy(network).train(self.training).to(memory_format=torch.channels_last)
        closest = math.inf
        found = []
        for made in networks:
            kind = next(made.parameters()).dtype
            images = x.to(kind, copy=True).requires_grad_()
            with Closest() as kinks:
                out = torch.cat([made(part) for part in images.split(self.sizes)])
            closest = kinks.least
            out.backward(dy.to(kind))
            found.append((out, images, made))
        images = x.clone().requires_grad_()
        out = engine.features(native, images, self.sizes)
        out.backward(dy)
        found.insert(0, (out, images, native))
        result = {"features": tuple(each[0] for each in found)}
        buffers = [dict(made.named_buffers()) for _, _, made in found]
        for name, var in buffers[2].items():
            if name.endswith("var"):
                mean = name.removesuffix("var") + "mean"
                result[name] = tuple(each[name] for each in buffers)
                # a mean may be close to 0: what counts is its error beside the deviation
                result[mean] = tuple(each[mean].double() + var.sqrt() for each in buffers)
        if closest > 1e-5:
            result["images"] = tuple(each[1].grad for each in found)
            # A tensor of one or two numbers may all but cancel, and its relative error is then a
            # matter of luck, for torch as for us: the gradients of all scales, all shifts and all
            # taps count as one vector each.
            weights = [dict(made.named_parameters()) for _, _, made in found]
            kinds = {name: kind_of(name, weight) for name, weight in weights[0].items()}
            for kind in sorted(set(kinds.values())):
                names = [name for name in kinds if kinds[name] == kind]
                result[kind] = tuple(
                    torch.cat([each[name].grad.flatten() for name in names]) for each in weights
                )
        return result


def kind_of(name: str, weight: Tensor) -> str:
    return "taps" if weight.dim() == 4 else "scales" if name.endswith("weight") else "shifts"


class Closest(torch.overrides.TorchFunctionMode):
    """Watches every ReLU and keeps the smallest distance of its input from 0."""

    def __init__(self) -> None:
        super().__init__()
        self.least = math.inf

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") in ("relu", "relu_"):
            self.least = min(self.least, float(args[0].detach().abs().min()))
        return function(*args, **(kwargs or {}))
