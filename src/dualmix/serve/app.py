"""The endpoints."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool

from dualmix.data.source import Fit
from dualmix.errors import InputError, StoreError
from dualmix.serve import answers, looks, page
from dualmix.serve.desk import Desk
from dualmix.serve.faults import RefusalError
from dualmix.serve.gate import Gate, Rules
from dualmix.serve.gathering import Gathering
from dualmix.serve.handlers import handle_faults
from dualmix.serve.metrics import Metrics
from dualmix.serve.record import Record, as_record, check_text
from dualmix.serve.schema import content_of, faults
from dualmix.serve.service import Scores, Service


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
    desk = Desk(service, rules, fit, Gathering(service.scores, gather) if gather > 0 else None)
    _add_learning(app, desk)
    _add_answers(app, desk)
    _add_looks(app, desk, metrics)
    _add_saving(app, service)
    _add_states(app, service)
    _add_pages(app)
    handle_faults(app)
    return Gate(app, rules, metrics)


def _add_learning(app: FastAPI, desk: Desk) -> None:
    service = desk.service

    @app.post(
        "/observe",
        response_model=answers.Accepted,
        responses=faults(408, 409, 413, 415, 422, 429, 503, 507),
        openapi_extra=content_of(labels=True),
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
        responses=faults(408, 409, 413, 422, 429, 503, 507),
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


def _add_answers(app: FastAPI, desk: Desk) -> None:
    def answering(path: str, model: type[Any], summary: str) -> Callable[[Any], Any]:
        return app.post(
            path,
            response_model=model,
            responses=faults(408, 413, 415, 422, 503),
            openapi_extra=content_of(labels=False),
            summary=summary,
        )

    @answering("/predict", answers.Predicted, "The likeliest label per row")
    async def predict(
        request: Request,
        at_least: Annotated[
            float, Query(ge=0, le=1, description="a probability below which the label is null")
        ] = 0.0,
    ) -> answers.Predicted:
        """Answer from the weights after the last batch that is complete."""
        scored = await desk.ask(request)
        columns, shares = scored.scores.argmax(1).tolist(), _softmax(scored).max(1).tolist()
        labels = [
            scored.labels[column] if not at_least or share >= at_least else None
            for column, share in zip(columns, shares, strict=True)
        ]
        return answers.Predicted(labels=labels, batches=scored.steps)

    @answering("/probabilities", answers.Probabilities, "A probability per row and class")
    async def probabilities(request: Request) -> answers.Probabilities:
        """Answer with the softmax of the scores."""
        scored = await desk.ask(request)
        shares = _softmax(scored).tolist()
        return answers.Probabilities(
            classes=scored.labels, probabilities=shares, batches=scored.steps
        )

    @answering("/top-k", answers.TopK, "The likeliest labels per row")
    async def top_k(
        request: Request, k: Annotated[int, Query(ge=1, le=10_000)] = 5
    ) -> answers.TopK:
        """Answer with the k likeliest labels, the likeliest first; fewer where fewer are known."""
        scored = await desk.ask(request)
        likely = torch.from_numpy(_softmax(scored))
        best, columns = likely.topk(min(k, likely.shape[1]), dim=1)
        labels = [[scored.labels[column] for column in row] for row in columns.tolist()]
        return answers.TopK(labels=labels, probabilities=best.tolist(), batches=scored.steps)


def _softmax(scored: Scores) -> np.ndarray[Any, Any]:
    return torch.from_numpy(scored.scores).float().softmax(1).numpy()


def _add_looks(app: FastAPI, desk: Desk, metrics: Metrics) -> None:
    service = desk.service

    @app.get(
        "/labels",
        response_model=answers.Classes,
        responses=faults(503),
        summary="Classes, when they came and how well they are known",
    )
    def labels() -> answers.Classes:
        """Answer with every class in the order in which they came."""
        return answers.Classes(classes=looks.classes(service))

    @app.get(
        "/progress",
        response_model=answers.Progress,
        responses=faults(),
        summary="Prequential accuracy over time",
    )
    def progress() -> answers.Progress:
        """Answer with what the page shows."""
        return looks.progress(service)

    @app.get(
        "/memory",
        response_model=answers.Memory,
        responses=faults(503),
        summary="Rows of the memory as pictures",
    )
    def memory() -> answers.Memory:
        """Answer with some rows of every class alike."""
        return answers.Memory(rows=looks.stored(service))

    @app.get(
        "/settings",
        response_model=answers.Settings,
        responses=faults(),
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
        responses=faults(),
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
        responses=faults(408, 413, 503, 507),
        summary="Make a snapshot now",
    )
    async def make_snapshot() -> answers.Made:
        """Save the learner and shorten the journal."""
        try:
            await run_in_threadpool(service.snapshot)
        except StoreError as fault:  # its words name a path of this machine
            raise RefusalError(507, f"{looks.NO_SNAPSHOT}: free some space.", 5.0) from fault
        assert service.snapshot_time is not None
        return answers.Made(batches=service.learned, time=looks.utc(service.snapshot_time))

    @app.get(
        "/snapshot",
        response_class=Response,
        responses={
            200: {"content": {"application/octet-stream": {}}, "description": "safetensors"},
            **faults(503),
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
