"""torch, imported when it is first used, so that settings are read and help is shown without it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["F", "torch"]


class _Lazy:
    """A module that is imported at the first look into it.

    By hand, because `lazy_loader` puts its stand-in for torch into `sys.modules`, where scipy finds
    and loads it, and because `importlib.util.LazyLoader` is not safe in threads before 3.11.9."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self._name), attribute)
        setattr(self, attribute, value)  # a second look costs no call
        return value


if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
else:
    torch, F = _Lazy("torch"), _Lazy("torch.nn.functional")
