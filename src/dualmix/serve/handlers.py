"""Every fault of a request as one sentence."""

from __future__ import annotations

import math

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from dualmix.errors import DualmixError, InputError
from dualmix.serve.faults import RefusalError


def handle_faults(app: FastAPI) -> None:
    """Turn every fault into one sentence."""

    @app.exception_handler(DualmixError)
    async def refused(request: Request, fault: Exception) -> JSONResponse:
        if isinstance(fault, InputError):
            return _sentence(422, str(fault))
        if not isinstance(fault, RefusalError):
            raise fault  # nothing else is meant for whoever asks
        after = {} if fault.retry is None else {"retry-after": str(math.ceil(fault.retry))}
        return _sentence(fault.status, str(fault), after)

    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, fault: Exception) -> JSONResponse:
        return _sentence(499, "Whoever asked went away.")  # only the metrics see it

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
