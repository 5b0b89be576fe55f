"""Refusals of the service: each has a status of HTTP and one sentence for whoever asked."""

from __future__ import annotations

from dualmix.errors import DualmixError


class RefusalError(DualmixError):
    """A request that is not served, though the service goes on.

    Parameters
    ----------
    retry
        Seconds after which it is worth trying again; none: it is not.
    """

    def __init__(self, status: int, sentence: str, retry: float | None = None) -> None:
        super().__init__(sentence)
        self.status, self.retry = status, retry


def crowded(waiting: int, retry: float) -> RefusalError:
    """Return the refusal of a batch that finds the queue full."""
    return RefusalError(
        429,
        f"{waiting} batches are waiting to be learned, which is the most: send this one again "
        "after the seconds that Retry-After says.",
        retry,
    )


def not_ready(why: str, retry: float = 1.0) -> RefusalError:
    """Return the refusal of a service that begins or ends."""
    return RefusalError(503, f"The service {why}: try again in a moment.", retry)


def full(fault: Exception) -> RefusalError:
    """Return the refusal of a batch that the disk has no room for."""
    return RefusalError(
        507,
        f"The batch was not accepted, for its journal cannot be written ({fault}): free some space "
        "and send it again; predictions go on.",
        5.0,
    )


def repeated(name: str) -> RefusalError:
    """Return the refusal of an id that stands for another batch."""
    return RefusalError(
        409,
        f"The id {name!r} was used for another batch: give each batch an id of its own, and the "
        "same one only to send the same batch again.",
    )
