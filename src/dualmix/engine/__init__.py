"""The native CPU engine: C kernels for the reduced ResNet-18, its head, its loss and its step, and
their binding.

It imports torch, numpy, ctypes, the standard library and `dualmix.errors`, and no other room of the
package."""

from dualmix.engine.head import cross_entropy, descend, linear, matmul, row_norms
from dualmix.engine.images import crop, grey, means
from dualmix.engine.library import BUILDS, available, current, select
from dualmix.engine.network import Folded, each_gradient, evaluate, features

__all__ = [
    "BUILDS",
    "Folded",
    "available",
    "crop",
    "cross_entropy",
    "current",
    "descend",
    "each_gradient",
    "evaluate",
    "features",
    "grey",
    "linear",
    "matmul",
    "means",
    "row_norms",
    "select",
]
