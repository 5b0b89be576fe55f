"""The endpoints."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from dualmix.data.source import Fit
from dualmix.errors import DualmixError, InputError, StoreError
from dualmix.learn.inputs import as_rows
from dualmix.serve import answers, bodies, page, pictures
from dualmix.serve.bodies import Body
from dualmix.serve.faults import RefusalError
from dualmix.serve.gate import Gate, Rules
from dualmix.serve.gathering import Gathering
from dualmix.serve.metrics import Metrics
from dualmix.serve.record import Record
from dualmix.serve.service import Receipt, Scores, Service, as_record, check_text

NO_SNAPSHOT = "The snapshot cannot be written; the journal has all that was accepted"
AT_ONCE = 8
"""Batches that are checked and journalled at the same time: a slow disk must not take all threads
from those who ask."""
SHOWN = 60
"""Rows of the memory that are shown."""

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


def _content(*, labels: bool) -> dict[str, Any]:
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


def _faults(*statuses: int) -> dict[int | str, dict[str, Any]]:
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


_ASKED = _faults(408, 413, 415, 422, 503)


@dataclass(frozen=True, slots=True)
class _Desk:
    """What the endpoints share."""

    service: Service
    rules: Rules
    fit: Fit
    gathering: Gathering | None
    door: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def accept(self, make: Callable[[], Record], *, wait: bool) -> answers.Accepted:
        """Check and journal a batch; say what is known of it, at once or when it is learned."""
        async with self.door:
            record = await run_in_threadpool(make)
            receipt = await run_in_threadpool(self.service.observe, record)
        return await _told(receipt, record, self.rules, wait=wait)

    async def read(self, request: Request, labels: list[str]) -> Body:
        """Return what a request's body holds, with labels of its address."""
        kind = bodies.media_type(request.headers.get("content-type", ""))
        content, shape, fit = await request.body(), self.service.shape, self.fit
        if kind == bodies.FORM:
            header = request.headers["content-type"]
            body, more = await run_in_threadpool(bodies.from_form, content, header, shape, fit)
            labels = [*labels, *more]
        else:
            body = await run_in_threadpool(bodies.decode, content, kind, shape, fit)
        if labels and body.y is not None:
            raise InputError("Labels stand in the body and in the address: give them once.")
        if labels:
            known = self.service.learner.model.labels
            body = Body(body.x, bodies.labels_of(labels, known), body.name)
        return body

    async def ask(self, request: Request) -> Scores:
        """Score the rows of a request."""
        body = await self.read(request, [])
        if body.y is not None or body.name:
            raise InputError("y and id are for /observe: send x alone.")
        return await run_in_threadpool(_scores, self.service, self.gathering, body)


def make_app(
    service: Service,
    rules: Rules | None = None,
    *,
    fit: Fit = "squeeze",
    gather: float = 0.0,
) -> Gate:
    """Return the service as an ASGI app.

    Parameters
    ----------
    fit
        How pictures that are sent get to the learner's size.
    gather
        Seconds that a single image waits for others, to be looked at together; 0: it does not.
    """
    rules, metrics = rules or Rules(), Metrics()
    app = FastAPI(
        title="dualmix",
        version=version("dualmix"),
        description="A learner that learns what is sent to it and answers meanwhile.",
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    desk = _Desk(service, rules, fit, Gathering(service.scores, gather) if gather > 0 else None)
    _add_learning(app, desk)
    _add_answers(app, desk)
    _add_looks(app, desk, metrics)
    _add_saving(app, service)
    _add_states(app, service)
    _add_pages(app)
    _handle(app)
    return Gate(app, rules, metrics)


def _add_learning(app: FastAPI, desk: _Desk) -> None:
    service = desk.service

    @app.post(
        "/observe",
        response_model=answers.Accepted,
        responses=_faults(408, 409, 413, 415, 422, 429, 503, 507),
        openapi_extra=_content(labels=True),
        summary="Learn a batch",
    )
    async def observe(
        request: Request,
        label: Annotated[
            list[str] | None, Query(description="labels of pictures or of an array, in order")
        ] = None,
        id: Annotated[  # noqa: A002
            str | None,
            Query(max_length=200, description="the same batch with the same id counts once"),
        ] = None,
        wait: Annotated[bool, Query(description="answer when it is learned")] = False,
    ) -> answers.Accepted:
        """Accept a batch. When this answers, the batch is on the disk and will be learned."""
        service.check_ready()
        body = await desk.read(request, label or [])
        told = {name for name in (id, request.headers.get("idempotency-key"), body.name) if name}
        if len(told) > 1:
            raise InputError("The request has two ids: give one.")
        if body.y is None:
            raise InputError("Labels are missing: give one for each row.")
        name = next(iter(told), "")
        make = partial(as_record, service.shape, body.x, body.y, name)
        return await desk.accept(make, wait=wait)

    @app.post(
        "/pause",
        response_model=answers.Accepted,
        responses=_faults(408, 409, 413, 422, 429, 503, 507),
        summary="Tell the learner of a pause in the stream",
    )
    async def pause(
        id: Annotated[str | None, Query(max_length=200)] = None,  # noqa: A002
        wait: bool = False,
    ) -> answers.Accepted:
        """Let the learner use a pause (`consolidate`); it is journalled as batches are."""
        if id:
            check_text(id, "An id")
        make = partial(Record, "pause", id or "", datetime.now(UTC).timestamp())
        return await desk.accept(make, wait=wait)


def _add_answers(app: FastAPI, desk: _Desk) -> None:
    @app.post(
        "/predict",
        response_model=answers.Predicted,
        responses=_ASKED,
        openapi_extra=_content(labels=False),
        summary="The likeliest label per row",
    )
    async def predict(
        request: Request,
        at_least: Annotated[
            float, Query(ge=0, le=1, description="a probability below which the label is null")
        ] = 0.0,
    ) -> answers.Predicted:
        """Answer from the weights after the last batch that is complete."""
        found = await desk.ask(request)
        likely = _softmax(found.scores)
        labels = [
            found.labels[column] if not at_least or share >= at_least else None
            for column, share in zip(
                found.scores.argmax(1).tolist(), likely.max(1).tolist(), strict=True
            )
        ]
        return answers.Predicted(labels=labels, batches=found.steps)

    @app.post(
        "/probabilities",
        response_model=answers.Probabilities,
        responses=_ASKED,
        openapi_extra=_content(labels=False),
        summary="A probability per row and class",
    )
    async def probabilities(request: Request) -> answers.Probabilities:
        """Answer with the softmax of the scores."""
        found = await desk.ask(request)
        return answers.Probabilities(
            classes=found.labels,
            probabilities=_softmax(found.scores).tolist(),
            batches=found.steps,
        )

    @app.post(
        "/top-k",
        response_model=answers.TopK,
        responses=_ASKED,
        openapi_extra=_content(labels=False),
        summary="The likeliest labels per row",
    )
    async def top_k(
        request: Request, k: Annotated[int, Query(ge=1, le=10_000)] = 5
    ) -> answers.TopK:
        """Answer with the k likeliest labels, the likeliest first; fewer where fewer are known."""
        found = await desk.ask(request)
        likely = torch.from_numpy(_softmax(found.scores))
        best, columns = likely.topk(min(k, likely.shape[1]), dim=1)
        labels = [[found.labels[column] for column in row] for row in columns.tolist()]
        return answers.TopK(labels=labels, probabilities=best.tolist(), batches=found.steps)


def _add_looks(app: FastAPI, desk: _Desk, metrics: Metrics) -> None:
    service = desk.service

    @app.get(
        "/labels",
        response_model=answers.Classes,
        responses=_faults(503),
        summary="Classes, when they came and how well they are known",
    )
    def labels() -> answers.Classes:
        """Answer with every class in the order in which they came."""
        return answers.Classes(classes=_classes(service))

    @app.get(
        "/progress",
        response_model=answers.Progress,
        responses=_faults(),
        summary="Prequential accuracy over time",
    )
    def progress() -> answers.Progress:
        """Answer with what the page shows."""
        return _progress(service)

    @app.get(
        "/memory",
        response_model=answers.Memory,
        responses=_faults(503),
        summary="Rows of the memory as pictures",
    )
    def memory() -> answers.Memory:
        """Answer with some rows of every class alike."""
        return answers.Memory(rows=_stored(service))

    @app.get(
        "/settings",
        response_model=answers.Settings,
        responses=_faults(),
        summary="The learner's settings, and limits",
    )
    def settings() -> answers.Settings:
        """Answer with the recipe of the learner, without any path of this machine."""
        recipe = service.learner.recipe
        hidden = {"weights"}
        return answers.Settings(
            method=recipe["kind"],
            settings=recipe["method"],
            model={name: v for name, v in recipe["model"].items() if name not in hidden},
            shape=recipe["shape"],
            classes=recipe["classes"],
            seed=recipe["seed"],
            fit=desk.fit,
            limits={
                "body_bytes": desk.rules.body,
                "seconds": desk.rules.seconds,
                "queue_batches": service.limits.queue,
                "queue_bytes": service.limits.queue_bytes,
                "classes": service.limits.classes,
            },
            version=app.version,
        )

    @app.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses=_faults(),
        summary="Numbers for Prometheus",
    )
    def metrics_text() -> PlainTextResponse:
        """Answer in Prometheus' text format."""
        return PlainTextResponse(
            metrics.text(service), media_type="text/plain; version=0.0.4; charset=utf-8"
        )


def _add_saving(app: FastAPI, service: Service) -> None:
    @app.post(
        "/snapshot",
        response_model=answers.Made,
        responses=_faults(408, 413, 503, 507),
        summary="Make a snapshot now",
    )
    async def make_snapshot() -> answers.Made:
        """Save the learner and shorten the journal."""
        try:
            await run_in_threadpool(service.snapshot)
        except StoreError as fault:  # its words name a path of this machine
            raise RefusalError(507, f"{NO_SNAPSHOT}: free some space.", 5.0) from fault
        assert service.snapshot_time is not None
        return answers.Made(batches=service.learned, time=_utc(service.snapshot_time))

    @app.get(
        "/snapshot",
        response_class=Response,
        responses={
            200: {"content": {"application/octet-stream": {}}, "description": "safetensors"},
            **_faults(503),
        },
        summary="The learner as a file that dualmix.load reads",
    )
    async def get_snapshot() -> Response:
        """Answer with the learner as it is now: weights, memory, state of chance; no code."""
        content = await run_in_threadpool(service.learner_bytes)
        headers = {"content-disposition": 'attachment; filename="learner.safetensors"'}
        return Response(content, media_type="application/octet-stream", headers=headers)


def _add_states(app: FastAPI, service: Service) -> None:
    @app.get("/health", response_model=answers.State, responses={503: {"model": answers.Fault}})
    async def health() -> answers.State:
        """Answer ok while the process can work."""
        if service.fault is not None:
            service.check_ready()
        return answers.State(status="ok")

    @app.get("/ready", response_model=answers.State, responses={503: {"model": answers.Fault}})
    async def ready() -> answers.State:
        """Answer ok when the journal is learned and batches are taken."""
        service.check_ready()
        if service.leaving:
            raise RefusalError(503, "The service is leaving.", 5.0)
        return answers.State(status="ok")


def _add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def root() -> HTMLResponse:
        return HTMLResponse(page.html(), headers=page.policy(page.html()))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        text = page.reference(app.openapi())
        return HTMLResponse(text, headers=page.policy(text))


def _handle(app: FastAPI) -> None:
    """Turn every fault into one sentence."""

    @app.exception_handler(DualmixError)
    async def refused(request: Request, fault: Exception) -> JSONResponse:
        if isinstance(fault, InputError):
            return _sentence(422, str(fault))
        if not isinstance(fault, RefusalError):
            raise fault  # nothing else is meant for whoever asks
        after = {} if fault.retry is None else {"retry-after": str(math.ceil(fault.retry))}
        return _sentence(fault.status, str(fault), after)

    @app.exception_handler(Exception)
    async def unforeseen(request: Request, fault: Exception) -> JSONResponse:
        said = "This is a fault of dualmix and not of yours: the log of the service tells more."
        return _sentence(500, said)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, fault: Exception) -> JSONResponse:
        assert isinstance(fault, RequestValidationError)
        wrong = [
            f"{'.'.join(map(str, error['loc'][1:]))}: {error['msg']}" for error in fault.errors()
        ]
        return _sentence(422, f"The request cannot be read: {'; '.join(wrong)}.")

    @app.exception_handler(HTTPException)
    async def plain(request: Request, fault: Exception) -> JSONResponse:
        assert isinstance(fault, HTTPException)
        words = {
            404: "There is nothing at this address: see /docs.",
            405: "This address takes another method: see /docs.",
        }
        headers = dict(fault.headers or {})
        if fault.status_code == 405:  # Starlette names the methods of the first route only
            here = [route for route in app.routes if getattr(route, "path", "") == request.url.path]
            known = {method for route in here for method in getattr(route, "methods", None) or ()}
            headers = {**headers, "Allow": ", ".join(sorted(known - {"HEAD"}))}
        return _sentence(fault.status_code, words.get(fault.status_code, fault.detail), headers)


def _sentence(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    safe = sentence.encode("utf-8", "replace").decode()
    return JSONResponse({"detail": safe}, status, headers)


def _scores(service: Service, gathering: Gathering | None, body: Body) -> Scores:
    if gathering is None or len(body.x) != 1:
        return service.scores(body.x)
    rows = as_rows(body.x, service.shape)
    row = rows.permute(0, 3, 1, 2) if rows.ndim == 4 else rows
    return gathering(row.numpy())


async def _told(receipt: Receipt, record: Record, rules: Rules, *, wait: bool) -> answers.Accepted:
    """Say what is known of a batch, at once or when it is learned."""
    if wait:
        try:
            done = asyncio.shield(asyncio.wrap_future(receipt.done))
            await asyncio.wait_for(done, rules.seconds)
        except TimeoutError:
            pass  # it is accepted all the same: `learned` says that it still waits
    known = receipt.done.done()
    outcome = receipt.done.result() if known else None
    if outcome is not None and outcome.refused is not None:
        raise RefusalError(422, outcome.refused)
    return answers.Accepted(
        number=receipt.number,
        id=record.name or None,
        repeated=receipt.repeated,
        learned=known,
        waiting=receipt.waiting,
        loss=outcome.loss if outcome else None,
        correct=outcome.correct if outcome else None,
    )


def _softmax(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return torch.from_numpy(scores).float().softmax(1).numpy()


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _classes(service: Service) -> list[answers.OfClass]:
    learner = service.learner
    with learner.guard.reading(learner):
        labels = list(learner.model.labels)
        stored = learner.memory.counts(len(labels)).tolist()
    with service.books():
        known = service.accuracy.classes
        return [
            answers.OfClass(
                label=label,
                first_batch=one.first_batch,
                first_seen=None if one.first_seen is None else _utc(one.first_seen),
                images=one.images,
                correct=one.correct,
                accuracy=one.correct / one.images if one.images else None,
                stored=count,
            )
            for label, count in zip(labels, stored, strict=True)
            if (one := known.get(label)) is not None
        ]


def _progress(service: Service) -> answers.Progress:
    learner = service.learner
    with service.books():
        accuracy = service.accuracy
        return answers.Progress(
            batches=learner.ages.steps,
            images=accuracy.images,
            accuracy=accuracy.overall,
            accuracy_recent=accuracy.late,
            course=[
                answers.Point(
                    time=_utc(time), batches=int(batches), images=int(n), accuracy=right / n
                )
                for time, batches, n, right in accuracy.course
            ],
            waiting=service.waiting,
            refused=service.refusals,
            last_refusal=next(reversed(service.refused.values()), None),
            memory=len(learner.memory),
            capacity=learner.memory.capacity,
            snapshot=None if service.snapshot_time is None else _utc(service.snapshot_time),
            snapshot_fault=None if service.snapshot_fault is None else f"{NO_SNAPSHOT}.",
        )


def _stored(service: Service) -> list[answers.Stored]:
    """Pick rows of every class in turn."""
    learner = service.learner
    if len(service.shape) != 3 or service.shape[0] not in (1, 3):
        return []
    with learner.guard.reading(learner):
        labels, rows = list(learner.model.labels), len(learner.memory)
        y = learner.memory.y[:rows].numpy()
        ranks = np.zeros(rows, np.int64)
        for column in np.unique(y):
            held = np.flatnonzero(y == column)
            ranks[held] = np.arange(len(held))
        picked = np.lexsort((y, ranks))[:SHOWN]
        x, columns = learner.memory.x[picked].cpu().numpy(), y[picked].tolist()
    return [
        answers.Stored(label=labels[column], picture=pictures.thumbnail(row))
        for row, column in zip(x, columns, strict=True)
    ]
