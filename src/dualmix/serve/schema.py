"""What the OpenAPI description says of bodies and of refusals, which FastAPI cannot see: bodies are
read by the service itself.
"""

from __future__ import annotations

from typing import Any

from dualmix.serve import answers, bodies

_ROWS = {
    "type": "array",
    "items": {},
    "minItems": 1,
    "description": "rows: nested lists (n, C, H, W) of whole numbers 0 to 255 or fractions 0 to 1, "
    "or (n, d) of numbers",
}
_LABELS = {
    "type": "array",
    "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    "minItems": 1,
    "description": "labels, one for each row: all whole numbers or all text",
}
_BINARY = {"schema": {"type": "string", "format": "binary"}}


def content_of(*, labels: bool) -> dict[str, Any]:
    """Describe the bodies for OpenAPI, since they are read here and not by FastAPI."""
    parts: dict[str, Any] = {"x": _ROWS}
    if labels:
        parts |= {"y": _LABELS, "id": {"type": "string", "minLength": 1, "maxLength": 200}}
    form = {
        "type": "object",
        "properties": {"image": {"type": "array", "items": {"type": "string", "format": "binary"}}},
        "required": ["image"],
    }
    content = {
        bodies.JSON: {
            "schema": {
                "type": "object",
                "properties": parts,
                "required": ["x", "y"] if labels else ["x"],
                "additionalProperties": False,
            }
        },
        bodies.NPY[0]: _BINARY,
        "image/png": _BINARY,
        "image/jpeg": _BINARY,
        bodies.FORM: {"schema": form},
    }
    return {"requestBody": {"required": True, "content": content}}


def faults(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe refusals: those of the gate, and more."""
    words = {
        401: "the token is missing or wrong",
        403: "the page of another site, or another host name",
        408: "the body came too slowly",
        409: "the id stands for another batch",
        413: "the body is too long",
        431: "the headers are too long",
        415: "a media type that is not known here",
        422: "the input cannot be used",
        429: "too many batches wait: try again after Retry-After seconds",
        503: "the service begins or ends: try again after Retry-After seconds",
        507: "the disk is full: nothing was accepted",
    }
    return {
        status: {"model": answers.Fault, "description": words[status]}
        for status in (401, 403, 431, *statuses)
    }
