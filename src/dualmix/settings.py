"""Frozen settings: the base of every configuration and the note that each value carries for `explain`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Source = Literal["paper", "reference", "inferred", "ours"]


class Settings(BaseModel):
    """A frozen group of values; unknown names are faults, and every value is checked even when it is a default."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


def value(default: Any, doc: str, *, paper: str = "-", source: Source = "ours", **limits: Any) -> Any:
    """Declare one setting: its default, what it does, what the paper says of it and whose choice the default is.

    Parameters
    ----------
    default
        The default; ``...`` where the user must give one.
    doc
        One sentence for ``--help`` and ``explain``.
    paper
        What the paper states, or ``"-"`` where it is silent.
    source
        ``paper`` (stated), ``reference`` (read in the code behind the paper's baselines), ``inferred`` (from two or
        more facts) or ``ours``.
    limits
        Bounds that pydantic checks (``ge``, ``gt``, ``le``, ...).
    """
    return Field(default, description=doc, json_schema_extra={"paper": paper, "source": source}, **limits)
