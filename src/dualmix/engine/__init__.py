"""The native CPU engine: C kernels for the reduced ResNet-18, its head, its loss and its step, and
their binding.

It imports torch, numpy, ctypes, the standard library and `dualmix.errors`, and no other room of the
package. torch waits until a kernel is asked for, so that settings can tell whether there is an
engine without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualmix.engine.head import cross_entropy as cross_entropy
    from dualmix.engine.head import descend as descend
    from dualmix.engine.head import linear as linear
    from dualmix.engine.head import matmul as matmul
    from dualmix.engine.head import row_norms as row_norms
    from dualmix.engine.head import softmax as softmax
    from dualmix.engine.head import total as total
    from dualmix.engine.head import unit as unit
    from dualmix.engine.images import crop as crop
    from dualmix.engine.images import grey as grey
    from dualmix.engine.images import jitter as jitter
    from dualmix.engine.library import BUILDS as BUILDS
    from dualmix.engine.library import available as available
    from dualmix.engine.library import current as current
    from dualmix.engine.library import select as select
    from dualmix.engine.network import Folded as Folded
    from dualmix.engine.network import each_gradient as each_gradient
    from dualmix.engine.network import evaluate as evaluate
    from dualmix.engine.network import features as features

_HOMES = {
    "head": (
        "cross_entropy",
        "descend",
        "linear",
        "matmul",
        "row_norms",
        "softmax",
        "total",
        "unit",
    ),
    "images": ("crop", "grey", "jitter"),
    "library": ("BUILDS", "available", "current", "select"),
    "network": ("Folded", "each_gradient", "evaluate", "features"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f"dualmix.engine.{home}"), name)
            return found
    raise AttributeError(f"module 'dualmix.engine' has no attribute {name!r}")
