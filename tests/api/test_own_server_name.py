"""The name of an agent's own server is looked up beside the loop, in bounded time (RFC 3263 is for others)."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wanderbus import connect
from wanderbus.api.sip_mobility import SIPMobility, SIPMobilityProperties
from wanderbus.client.error_mapping import not_reached
from wanderbus.client.machine.messages import AgentProperties, ServerUnreachable, long_requests_lost
from wanderbus.errors import ConfigurationError, Unreachable


@pytest.fixture
def silent_resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A system whose name servers do not answer: a lookup returns when the test is over."""
    over = threading.Event()

    def asking(*question: Any, **options: Any) -> Any:
        over.wait(20.0)
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    monkeypatch.setattr(socket, "getaddrinfo", asking)
    yield
    over.set()


async def longest_stall_s(opening: Any) -> tuple[float, BaseException | None]:
    """Longest time that the loop was blocked while ``opening`` was awaited, and the exception it raised."""
    longest, before = 0.0, time.monotonic()
    task = asyncio.create_task(opening)
    while not task.done():
        await asyncio.sleep(0.01)
        longest, before = max(longest, time.monotonic() - before), time.monotonic()
    return longest, task.exception()


def agent(tmp_path: Path, **options: Any) -> Any:
    given: dict[str, Any] = {"password": "x", "server": "sip.example.org", "state_dir": tmp_path, "connect_s_max": 0.5}
    return connect("sip:alice@example.org", **(given | options))


@pytest.mark.usefixtures("silent_resolver")
def test_a_resolver_that_does_not_answer_holds_nobody_up(tmp_path: Path) -> None:
    async def story() -> None:
        stalled_s, error = await longest_stall_s(agent(tmp_path).__aenter__())
        assert isinstance(error, Unreachable)
        assert "'sip.example.org:5060' was not found in 0.5 s" in str(error)
        assert stalled_s < 0.4

    asyncio.run(story())


@pytest.mark.usefixtures("silent_resolver")
def test_nor_does_it_hold_up_a_user_of_sip_alone() -> None:
    async def story() -> None:
        properties = SIPMobilityProperties(uri="alice@example.org", server="sip.example.org", wait_s_max=0.5)
        stalled_s, error = await longest_stall_s(SIPMobility(properties).initialise())
        assert isinstance(error, Unreachable)
        assert stalled_s < 0.4

    asyncio.run(story())


def test_a_name_that_does_not_exist_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asking(*question: Any, **options: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", asking)

    async def story() -> None:
        with pytest.raises(ConfigurationError, match=r"the host of 'sip.example.org:5060' cannot be found: Name"):
            await agent(tmp_path).__aenter__()

    asyncio.run(story())


def test_a_name_of_this_host_is_found(tmp_path: Path) -> None:
    async def story() -> None:
        alice = agent(tmp_path, server="localhost:9")
        with pytest.raises(Unreachable, match=r"through 127.0.0.1:9 in 0.5 s"):
            await alice.__aenter__()

    asyncio.run(story())


@pytest.mark.parametrize("words", ["certificate is not yet valid", "certificate has expired"])
def test_a_certificate_out_of_its_time_points_at_the_clock(words: str) -> None:
    properties = AgentProperties("sip:alice@b.example", ("192.0.2.1", 5061), "sip:broker@b.example", "phone", epoch=1)
    trouble = ServerUnreachable(f"[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {words}")
    error = not_reached(properties, 10.0, trouble)
    assert str(error).endswith("check the clock of this device, then the server's certificate")


def test_a_narrow_path_points_at_tcp() -> None:
    properties = AgentProperties("sip:alice@b.example", ("192.0.2.1", 5060), "sip:broker@b.example", "phone", epoch=1)
    line = str(not_reached(properties, 10.0, long_requests_lost(871)))
    assert "not one of 871 bytes" in line
    assert line.endswith("let the server accept SIP over TCP (wanderbus up --tcp, and no firewall on the way)")
