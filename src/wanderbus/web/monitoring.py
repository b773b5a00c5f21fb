"""Pages for monitoring: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for whoever starts servers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from wanderbus.metrics import Sample
from wanderbus.refusals import Limited
from wanderbus.web import exposition
from wanderbus.web.operator_login import OperatorLogin

_UNREADY = {"disk_full": "the disk is full", "draining": "the server drains"}
"""Gauges that are 1 while new sessions or events are unwelcome, and the reason to give."""

_REFUSALS = {
    401: "give name and password of an operator",
    403: "this user has not the role of an operator",
    429: "too many wrong passwords; try again later",
}


class Monitored(Protocol):
    """State and samples of a process."""

    @property
    def is_serving(self) -> bool:
        """Return whether every part has started, and none has failed."""
        ...

    @property
    def failure(self) -> str:
        """Return the error after which the process is about to end, "" while all is well."""
        ...

    def samples(self) -> Sequence[Sample]:
        """Return the samples of the process; empty before it serves."""
        ...

    def note(self, limited: Limited) -> None:
        """Count what a limit of the pages has refused or closed."""
        ...


def unready(process: Monitored) -> list[str]:
    """Return the reasons why nobody should be sent to a process, none if it is ready."""
    if process.failure or not process.is_serving:
        return [process.failure or "the server is starting"]
    return [_UNREADY[each.metric] for each in process.samples() if each.metric in _UNREADY and each.value]


def application(
    process: Monitored, login: OperatorLogin | None, clock: Callable[[], float] = time.monotonic
) -> Starlette:
    """Return the pages of ``process``; with ``login``, the metrics are for operators only."""

    async def metrics(request: Request) -> Response:
        host = request.client.host if request.client is not None else "?"
        if login is not None:
            status = login.status(request.headers.get("authorization", ""), host, clock())
            if status in _REFUSALS:
                return _refused(status, login.domain)
        return Response(exposition.page(process.samples()), media_type=exposition.CONTENT_TYPE)

    async def health(request: Request) -> Response:
        return _state([process.failure] if process.failure else [], "ok")

    async def readiness(request: Request) -> Response:
        return _state(unready(process), "ready")

    return Starlette(routes=[Route("/metrics", metrics), Route("/healthz", health), Route("/readyz", readiness)])


def _state(reasons: Iterable[str], status: str) -> Response:
    found = list(reasons)
    content = {"status": f"not {status}" if found else status, "reasons": found}
    return JSONResponse(content, status_code=503 if found else 200)


def _refused(status: int, domain: str) -> Response:
    headers = {"WWW-Authenticate": f'Basic realm="{domain}", charset="UTF-8"'} if status == 401 else None
    return PlainTextResponse(_REFUSALS[status] + "\n", status_code=status, headers=headers)
