"""Pages for monitoring, without a network."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wanderbus.errors import ConfigurationError
from wanderbus.metrics import Sample
from wanderbus.parameters.signalling import LoginLimits
from wanderbus.refusals import Limited
from wanderbus.settings.server import ProxySettings
from wanderbus.sip.authentication.login_guard import LoginGuard
from wanderbus.web.http_service import service_of
from wanderbus.web.monitoring import application, unready
from wanderbus.web.operator_login import OperatorLogin


class Process(msgspec.Struct):
    """A process in any state."""

    is_serving: bool = True
    failure: str = ""
    gauges: dict[str, float] = {}

    def note(self, limited: Limited) -> None:
        return

    def samples(self) -> Sequence[Sample]:
        return [Sample(name, value) for name, value in self.gauges.items()]


def fetched(process: Process, path: str, login: OperatorLogin | None = None, user: str = "") -> tuple[int, bytes]:
    """Status and body of a page."""
    sent: list[MutableMapping[str, Any]] = []
    headers = [(b"authorization", b"Basic " + base64.b64encode(user.encode()))] if user else []
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "headers": headers,
        "query_string": b"",
        "client": ("192.0.2.1", 9),
    }

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    asyncio.run(application(process, login, lambda: 0.0)(scope, receive, send))
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])


@pytest.mark.parametrize(
    ("process", "reasons"),
    [
        (Process(), []),
        (Process(gauges={"draining": 0.0, "disk_full": 0.0}), []),
        (Process(gauges={"draining": 1.0}), ["the server drains"]),
        (Process(gauges={"disk_full": 1.0}), ["the disk is full"]),
        (Process(is_serving=False), ["the server is starting"]),
        (Process(failure="writing failed"), ["writing failed"]),
    ],
)
def test_u08_a_server_is_ready_unless_there_is_a_reason(process: Process, reasons: list[str]) -> None:
    assert unready(process) == reasons
    status, body = fetched(process, "/readyz")
    assert status == (503 if reasons else 200)
    assert json.loads(body)["reasons"] == reasons
    assert fetched(process, "/healthz")[0] == (503 if process.failure else 200)


def test_u08_metrics_are_for_operators_where_a_login_is_required() -> None:
    login = OperatorLogin(
        "example.org", {"olga": "o", "alice": "a"}, lambda name: name == "olga", LoginGuard(LoginLimits())
    )
    process = Process(gauges={"links": 4.0})
    assert fetched(process, "/metrics", login)[0] == 401
    assert fetched(process, "/metrics", login, "alice:a")[0] == 403
    status, body = fetched(process, "/metrics", login, "olga:o")
    assert status == 200
    assert b"wanderbus_links 4.0\n" in body
    assert fetched(process, "/healthz", login)[0] == 200
    assert fetched(process, "/nothing", login)[0] == 404


@pytest.mark.parametrize(
    ("http", "error"),
    [
        ("8080", "is not HOST:PORT"),
        ("localhost:8080", "is not HOST:PORT"),
        ("127.0.0.1:70000", "is not HOST:PORT"),
        ("192.0.2.1:8080", "passwords would cross the network"),
        ("0.0.0.0:8080", "passwords would cross the network"),
        ("[::]:8080", "passwords would cross the network"),
    ],
)
def test_u08_addresses_without_protection_are_refused(http: str, error: str) -> None:
    settings = ProxySettings(domain="example.org", users={}, data_dir=Path("data"), http=http)
    with pytest.raises(ConfigurationError, match=error):
        service_of(settings, Process(), {}, lambda name: True)


def test_u08_a_proxy_alone_serves_on_loopback_only() -> None:
    settings = ProxySettings(domain="example.org", users={}, data_dir=Path("data"), http="192.0.2.1:1")
    with pytest.raises(ConfigurationError, match="has no operators"):
        service_of(settings, Process(), {}, None)
    assert service_of(msgspec.structs.replace(settings, http="[::1]:0"), Process(), {}, None).url == "http://[::1]:0"
