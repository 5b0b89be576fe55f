"""The forms of the service's answers, which the OpenAPI page shows."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

Label = int | str


class Accepted(BaseModel):
    """A batch that is on the disk.

    With ``wait`` it is learned too, and loss and correct are told; else they are null.
    """

    number: int = Field(description="its place in the journal, from 0")
    id: str | None = Field(description="the request's id, if it had one")
    repeated: bool = Field(description="the same id and batch came before: it counts once")
    learned: bool = Field(description="whether it has been learned yet")
    waiting: int = Field(description="batches that wait to be learned, this one included")
    loss: float | None = None
    correct: int | None = Field(None, description="images recognised before they were learned")


class Predicted(BaseModel):
    """A label per row; null where no class reached ``at_least``."""

    labels: list[Label | None]
    batches: int = Field(description="batches that had been learned when this was answered")


class Probabilities(BaseModel):
    """A probability per row and class."""

    classes: list[Label]
    probabilities: list[list[float]]
    batches: int


class TopK(BaseModel):
    """The likeliest labels per row, and their probabilities."""

    labels: list[list[Label]]
    probabilities: list[list[float]]
    batches: int


class OfClass(BaseModel):
    """A class, in the order in which classes came."""

    label: Label
    first_batch: int
    first_seen: str | None = Field(description="UTC; null: before the service began")
    images: int
    correct: int = Field(description="images recognised before they were learned")
    accuracy: float | None
    stored: int = Field(description="rows in the memory")


class Classes(BaseModel):
    """All classes."""

    classes: list[OfClass]


class Point(BaseModel):
    """Some batches in a row."""

    time: str
    batches: int
    images: int
    accuracy: float


class Progress(BaseModel):
    """How the service goes."""

    batches: int
    images: int
    accuracy: float | None
    accuracy_recent: float | None = Field(description="of the latest 1,000 images")
    course: list[Point]
    waiting: int
    refused: int = Field(description="batches that were left out since their loss was not finite")
    last_refusal: str | None
    memory: int
    capacity: int
    snapshot: str | None = Field(description="when the last one was made, UTC")
    snapshot_fault: str | None


class Stored(BaseModel):
    """A row of the memory as a picture."""

    label: Label
    picture: str = Field(description="a data: address of a PNG")


class Memory(BaseModel):
    """Some rows of the memory, of every class alike; none where rows are no images."""

    rows: list[Stored]


class Settings(BaseModel):
    """What is served, and its limits."""

    method: str
    settings: dict[str, Any]
    model: dict[str, Any]
    shape: list[int]
    classes: int | None
    seed: int
    fit: str
    limits: dict[str, float]
    version: str


class State(BaseModel):
    """Whether the service lives, or is ready."""

    status: Literal["ok"]


class Made(BaseModel):
    """A snapshot that was made."""

    batches: int
    time: str


class Fault(BaseModel):
    """What is wrong, and what to do about it."""

    detail: str
