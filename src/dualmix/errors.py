"""Every fault a user can cause, as one family: each message is a sentence that says what to do."""


class DualmixError(Exception):
    """Base of all faults that are not bugs; the command line prints it and exits with 2.

    A message may quote names and libraries: what a terminal would obey is shown as an escape."""

    def __str__(self) -> str:
        return "".join(
            letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1]
            for letter in super().__str__()
        )


class ConfigError(DualmixError):
    """A setting is unknown, missing or out of range."""


class DataError(DualmixError):
    """Images or labels on disk are missing, broken, unsafe or of the wrong kind."""


class InputError(DualmixError, ValueError):
    """A batch handed to a learner cannot be used; the learner is unchanged."""


class TrainingError(DualmixError):
    """Training has diverged; the learner is as it was before the batch."""


class StoreError(DualmixError):
    """A results folder cannot be read or written, or holds something it should not."""


class BusyError(StoreError):
    """Another process is working on the same run."""
