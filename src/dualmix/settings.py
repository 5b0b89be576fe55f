"""Frozen settings: the base of every configuration, and what each setting carries for `explain`
and for `tune`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

LARGEST_FLOAT32 = 3.4028234663852886e38
Source = Literal["paper", "reference", "inferred", "calibrated", "ours"]


class Settings(BaseModel):
    """A frozen group of values; unknown names are faults, and every value is checked even when it
    is a default.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    @field_validator("*")
    @classmethod
    def _machines_can_hold_it(cls, given: Any) -> Any:
        for number in given if isinstance(given, tuple) else (given,):
            if isinstance(number, float) and abs(number) > LARGEST_FLOAT32:
                raise ValueError(f"{number:g} is beyond the numbers of a network (3.4e38)")
            if isinstance(number, int) and not -(2**63) <= number < 2**63:
                raise ValueError("it is beyond the whole numbers of a machine (64 bits)")
        return given


@dataclass(frozen=True, slots=True)
class Range:
    """What `dualmix tune` tries for a setting.

    Attributes
    ----------
    low, high
        Both ends may be tried.
    log
        Equal factors are equally likely, rather than equal differences.
    needs
        Settings of the same group, one of which must be above 0 for the value to matter; none: it
        always does.
    asked
        It is tuned only when it is named: it changes what a step costs.
    """

    low: float
    high: float
    log: bool = False
    needs: tuple[str, ...] = ()
    asked: bool = False


def setting(
    default: Any,
    doc: str,
    *,
    paper: str = "-",
    source: Source = "ours",
    tune: Range | None = None,
    **limits: Any,
) -> Any:
    """Declare one setting: its default, what it does, what the paper says of it and whose choice
    the default is.

    Parameters
    ----------
    default
        The default; ``...`` where the user must give one.
    doc
        One sentence for ``--help`` and ``explain``.
    paper
        What the paper states, or ``"-"`` where it is silent.
    source
        ``paper`` (stated), ``reference`` (read in the code behind the paper's baselines),
        ``inferred`` (from two or more facts), ``calibrated`` (by the paper's Table 3) or ``ours``.
    tune
        What `dualmix tune` tries; none: it is left alone.
    limits
        Bounds that pydantic checks (``ge``, ``gt``, ``le``, ...).
    """
    extra: dict[str, Any] = {"paper": paper, "source": source} | (
        {"tune": asdict(tune)} if tune else {}
    )
    return Field(default, description=doc, json_schema_extra=extra, **limits)
