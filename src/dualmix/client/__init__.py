"""A client of `dualmix serve`: learn and ask over HTTP, again where the network or the service
failed.

It imports the root, numpy and the standard library only, never torch: a device that sends images
needs no more.
"""

from __future__ import annotations

from dualmix.client.client import Accepted, Client, ServiceError

__all__ = ["Accepted", "Client", "ServiceError"]
