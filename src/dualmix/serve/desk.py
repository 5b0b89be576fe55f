"""The desk between endpoints and service: bodies are read here, batches handed in, rows scored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from dualmix.data.source import Fit
from dualmix.errors import InputError
from dualmix.learn.inputs import as_rows
from dualmix.serve import answers, bodies
from dualmix.serve.bodies import Body
from dualmix.serve.faults import RefusalError
from dualmix.serve.gate import Rules
from dualmix.serve.gathering import Gathering
from dualmix.serve.record import Record
from dualmix.serve.service import Receipt, Scores, Service

AT_ONCE = 8
"""Batches that are checked and journalled at the same time: a slow disk must not take all threads
from those who ask."""
DECODED = 2
"""Bodies that are decoded at the same time: a small one may become some hundred MB for a moment."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What the endpoints share.

    Parameters
    ----------
    fit
        How pictures that are sent get to the learner's size.
    gathering
        Asks about single rows together; none: each is asked about alone.
    """

    service: Service
    rules: Rules
    fit: Fit
    gathering: Gathering | None
    door: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(DECODED))

    async def accept(self, make: Callable[[], Record], *, wait: bool) -> answers.Accepted:
        """Check and journal a batch; say what is known of it, at once or when it is learned."""
        async with self.door:
            record = await run_in_threadpool(make)
            receipt = await run_in_threadpool(self.service.observe, record)
        return await self._told(receipt, record, wait=wait)

    async def read(self, request: Request, labels: list[str]) -> Body:
        """Return what a request's body holds, with labels of its address."""
        header = request.headers.get("content-type", "")
        kind, content = bodies.media_type(header), await request.body()
        shape, fit = self.service.shape, self.fit
        async with self.reading:
            if kind == bodies.FORM:
                body, more = await run_in_threadpool(bodies.from_form, content, header, shape, fit)
                labels = [*labels, *more]
            else:
                body = await run_in_threadpool(bodies.decode, content, kind, shape, fit)
        if labels and body.y is not None:
            raise InputError("Labels stand in the body and in the address: give them once.")
        if labels:
            body = Body(body.x, bodies.labels_of(labels, self.service.any_label()), body.name)
        return body

    async def ask(self, request: Request) -> Scores:
        """Score the rows of a request."""
        body = await self.read(request, [])
        if body.y is not None or body.name:
            raise InputError("y and id are for /observe: send x alone.")
        return await run_in_threadpool(self._scores, body)

    def _scores(self, body: Body) -> Scores:
        if self.gathering is None or len(body.x) != 1:
            return self.service.scores(body.x)
        rows = as_rows(body.x, self.service.shape)
        row = rows.permute(0, 3, 1, 2) if rows.ndim == 4 else rows
        return self.gathering(row.numpy())

    async def _told(self, receipt: Receipt, record: Record, *, wait: bool) -> answers.Accepted:
        if wait:
            try:
                done = asyncio.shield(asyncio.wrap_future(receipt.done))
                await asyncio.wait_for(done, self.rules.seconds)
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
