"""The facade's five groups of methods go each to their module (SPEC C-02)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Generator
from typing import Any

import pytest

from tests.api_sip.parties import properties
from wanderbus.api.sip_mobility import RemoteMediaStatus, SDPMediaDescriptionData, SIPMobility, SIPMobilityListener

MEDIUM = SDPMediaDescriptionData(5000)
LISTENER = SIPMobilityListener()

FORWARDED = [
    ("initialise", (), "properties_manager", "initialise"),
    ("terminate", (), "properties_manager", "terminate"),
    ("register", (), "registration_manager", "register"),
    ("unregister", (), "registration_manager", "unregister"),
    ("rebind", ("127.0.0.2",), "registration_manager", "rebind"),
    ("create_session", ("sip:bob@example.org",), "session_manager", "create_session"),
    ("terminate_session", ("id",), "session_manager", "terminate_session"),
    ("update_session", ("id",), "session_manager", "update_session"),
    ("set_media_status", ("id", RemoteMediaStatus.DISCONNECTED), "session_manager", "set_media_status"),
    ("set_offer_handler", (None,), "session_manager", "set_offer_handler"),
    ("add_listener", (LISTENER,), "listener_manager", "add"),
    ("remove_listener", (LISTENER,), "listener_manager", "remove"),
    ("add_media_description", (MEDIUM,), "properties_manager", "add_media_description"),
    ("media_descriptions", (), "properties_manager", "media_descriptions"),
    ("remove_media_description", (MEDIUM,), "properties_manager", "remove_media_description"),
    ("change_media_description", (MEDIUM, MEDIUM), "properties_manager", "change_media_description"),
    ("set_request_handler", ("MESSAGE", None), "helper", "serve"),
    ("set_reply_handler", ("OPTIONS", None), "helper", "alter"),
    ("set_outgoing_handler", ("OPTIONS", None), "helper", "alter_requests"),
]


class Nothing:
    """Return value of a spy: it can be awaited, and can be ignored."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


@pytest.mark.parametrize(("method", "arguments", "module", "target"), FORWARDED, ids=lambda value: str(value)[:24])
def test_c02_method_is_forwarded(
    method: str, arguments: tuple[object, ...], module: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mobility = SIPMobility(properties("alice", "127.0.0.1:5060"))
    calls: list[tuple[object, ...]] = []

    def spy(*given: object) -> Nothing:
        calls.append(given)
        return Nothing()

    monkeypatch.setattr(getattr(mobility, module), target, spy)
    monkeypatch.setattr(mobility.registration_manager, "watch", lambda *given: None)

    async def call() -> None:
        result = getattr(mobility, method)(*arguments)
        if inspect.isawaitable(result):
            await result

    asyncio.run(call())
    assert calls == [arguments]


def test_c02_no_public_method_is_forgotten() -> None:
    methods = {name for name, _ in inspect.getmembers(SIPMobility, inspect.isfunction) if not name.startswith("_")}
    assert methods == {method for method, *_ in FORWARDED}
