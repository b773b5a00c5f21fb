"""Reliable UDP by itself, through real sockets: ``wanderbus.api.rudp`` (SPEC F-09)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest

from wanderbus.api import rudp, rudp_socket
from wanderbus.api.rudp import Channel, Listener, RudpConfig
from wanderbus.errors import Closed, ConfigurationError, LimitExceeded, Refused, Unreachable, WanderbusError

SECRET = b"known to both sides"
HASTY = RudpConfig(initial_timeout_s=0.05, timeout_max_s=0.1, retries_max=3)
"""Gives up within half a second."""


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 30))


@contextlib.asynccontextmanager
async def two_ends(**options: Any) -> AsyncIterator[tuple[Channel, Channel]]:
    """The connecting end of a channel and the accepting one; both are closed."""
    given = {"secret": SECRET, **options}
    async with (
        rudp.listen("127.0.0.1", **given) as listener,
        rudp.connect("127.0.0.1", listener.address[1], **given) as here,
    ):
        there = await anext(listener)
        yield here, there
        await asyncio.gather(here.close(), there.close())


async def all_of(channel: Channel) -> list[bytes]:
    return [message async for message in channel]


@pytest.mark.parametrize("options", [{}, {"secret": None, "encryption": False}, {"encryption": False}])
def test_messages_arrive_both_ways_once_and_in_order(options: dict[str, Any]) -> None:
    messages = [str(number).encode() * (number % 7) for number in range(2_000)]

    async def story() -> None:
        async with two_ends(**options) as (here, there):

            async def say(channel: Channel) -> None:
                for message in messages:
                    await channel.send(message)
                await channel.close()

            _, _, out, back = await asyncio.gather(say(here), say(there), all_of(there), all_of(here))
            assert out == messages
            assert back == messages[: len(back)], "who has closed does not read on for long"

    run(story())


def test_long_messages_arrive() -> None:
    async def story() -> None:
        async with two_ends() as (here, there):
            hearing = asyncio.create_task(all_of(there))
            for fill in range(100):
                await here.send(bytes([fill]) * 65_536)
            await here.close()
            assert await hearing == [bytes([fill]) * 65_536 for fill in range(100)]

    run(story())


def test_drain_waits_for_the_other_side() -> None:
    async def story() -> None:
        async with two_ends() as (here, there):
            await here.send(b"word")
            assert not here._is_settled()
            await here.drain()
            assert here._is_settled()
            assert await anext(there) == b"word"
            assert here.rtt_s is not None
            assert 0 < here.rtt_s < 5
            assert here.counters.sent > 0

    run(story())


def test_sending_waits_while_nobody_reads() -> None:
    """Both sides buffer a bounded amount, and all of it arrives once the receiver reads."""
    message, count = bytes(1_000), 20_000

    async def story() -> None:
        async with two_ends() as (here, there):
            sent = 0

            async def say() -> None:
                nonlocal sent
                for _ in range(count):
                    await here.send(message)
                    sent += 1

            saying = asyncio.create_task(say())
            reached = -1
            while reached != sent:
                reached = sent
                await asyncio.sleep(0.3)
            held_bytes = rudp_socket.UNSENT_BYTES_MAX + RudpConfig().receive_window_frames * 1_200
            assert 0 < sent < 2 * held_bytes / len(message) < count
            heard = 0
            async for _ in there:
                heard += 1
                if heard == count:
                    break
            await saying

    run(story())


def test_a_channel_ends_for_the_other_side_when_it_is_closed() -> None:
    async def story() -> None:
        async with two_ends() as (here, there):
            await here.send(b"last word")
            closing = asyncio.create_task(here.close())
            assert await all_of(there) == [b"last word"]
            await there.close()
            await closing
            with pytest.raises(Closed):
                await here.send(b"more")

    run(story())


def test_closing_both_ends_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither waits for the other's patience to run out."""

    async def story() -> None:
        async with two_ends() as (here, there):
            before = asyncio.get_running_loop().time()
            await asyncio.gather(here.close(), there.close())
            assert asyncio.get_running_loop().time() - before < rudp_socket.LINGER_S

    run(story())


def test_closing_a_channel_whose_other_side_has_left_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has received the other's FIN and has no more data to send: a missing ACK of its own FIN is no error."""
    monkeypatch.setattr(rudp_socket, "LINGER_S", 0.1)

    async def story() -> None:
        async with rudp.listen("127.0.0.1", secret=SECRET) as listener:
            async with rudp.connect("127.0.0.1", listener.address[1], secret=SECRET) as here:
                there = await anext(listener)
                await here.send(b"last word")
            assert await all_of(there) == [b"last word"]
            before = asyncio.get_running_loop().time()
            await there.close()
            assert asyncio.get_running_loop().time() - before < rudp_socket.CLOSE_S_MAX / 2

    run(story())


def test_an_exception_in_the_block_does_not_look_like_the_end() -> None:
    """The other side gets no FIN, which would mean a complete stream; it gets a reset when it sends."""

    async def story() -> None:
        async with rudp.listen("127.0.0.1", secret=SECRET, config=HASTY) as listener:
            with contextlib.suppress(ZeroDivisionError):
                async with rudp.connect("127.0.0.1", listener.address[1], secret=SECRET) as here:
                    there = await anext(listener)
                    await here.send(b"half of it")
                    assert await anext(there) == b"half of it"
                    raise ZeroDivisionError
            await there.send(b"and?")
            with pytest.raises((Unreachable, Closed)):
                await anext(there)

    run(story())


def test_a_channel_that_the_other_side_abandoned_is_reset() -> None:
    async def story() -> None:
        async with two_ends() as (here, there):
            await here.send(b"word")
            await here.drain()
            with contextlib.suppress(ZeroDivisionError):
                async with there:
                    raise ZeroDivisionError
            await here.send(b"are you there?")
            with pytest.raises(Closed, match=r"127\.0\.0\.1:\d+ .* open a new one"):
                await here.drain()
            with pytest.raises(Closed):
                await anext(here)

    run(story())


def test_a_listener_that_is_gone_is_unreachable() -> None:
    async def story() -> None:
        async with contextlib.AsyncExitStack() as stack:
            listener = await stack.enter_async_context(rudp.listen("127.0.0.1", secret=SECRET))
            async with rudp.connect("127.0.0.1", listener.address[1], secret=SECRET, config=HASTY) as here:
                await anext(listener)
                await stack.aclose()
                await here.send(b"word")
                with pytest.raises(Unreachable, match="open a new channel"):
                    await here.drain()
                with pytest.raises(Unreachable):
                    await here.send(b"more")

    run(story())


def test_leaving_the_listener_ends_its_iteration_and_its_channels() -> None:
    async def story() -> None:
        async with rudp.listen("127.0.0.1", secret=SECRET) as listener:
            waiting = asyncio.create_task(all_channels(listener))
            await asyncio.sleep(0)
        assert await waiting == []

    async def all_channels(listener: Listener) -> list[Channel]:
        return [channel async for channel in listener]

    run(story())


def opening(port: int, **options: Any) -> Callable[[], Awaitable[None]]:
    async def open_and_close() -> None:
        async with rudp.connect("127.0.0.1", port, **options):
            pass

    return open_and_close


@pytest.mark.parametrize("options", [{"secret": b"another secret...."}, {"secret": SECRET, "encryption": False}])
def test_without_the_secret_or_in_another_mode_nobody_answers(options: dict[str, Any]) -> None:
    async def story() -> None:
        async with rudp.listen("127.0.0.1", secret=SECRET) as listener:
            with pytest.raises(Unreachable, match=r"127\.0\.0\.1:\d+ .*same secret"):
                await opening(listener.address[1], connect_s_max=0.3, **options)()
            with pytest.raises(Unreachable, match="same secret"):
                await opening(listener.address[1], config=HASTY, **options)()

    run(story())


def test_one_channel_too_many_is_refused_by_name() -> None:
    async def story() -> None:
        async with rudp.listen("127.0.0.1", secret=SECRET, connections_max=1) as listener:
            port = listener.address[1]
            async with rudp.connect("127.0.0.1", port, secret=SECRET) as here:
                await anext(listener)
                with pytest.raises(Refused, match="connections_max"):
                    await opening(port, secret=SECRET)()
                await here.send(b"undisturbed")
                await here.drain()

    run(story())


@pytest.mark.parametrize(
    ("host", "port", "options", "words"),
    [
        ("127.0.0.1", 9, {"secret": None}, "encryption=False"),
        ("127.0.0.1", 9, {"secret": b"short"}, "16"),
        ("127.0.0.1", 9, {"secret": ""}, "16"),
        ("no such host", 9, {"secret": SECRET}, "no such host"),
        ("127.0.0.1", 70_000, {"secret": SECRET}, "70000"),
        ("127.0.0.1", 9, {"secret": SECRET, "local_address": "192.0.2.77"}, "192.0.2.77"),
    ],
)
def test_unusable_arguments_are_refused_in_one_line(host: str, port: int, options: dict[str, Any], words: str) -> None:
    async def story() -> None:
        with pytest.raises(ConfigurationError, match=words) as raised:
            async with rudp.connect(host, port, **options):
                pass
        assert "\n" not in str(raised.value)
        assert "short" not in str(raised.value), "not even a bad secret is shown"

    run(story())


def test_a_port_in_use_is_reported() -> None:
    async def story() -> None:
        async with rudp.listen("127.0.0.1", secret=SECRET) as listener:
            with pytest.raises(ConfigurationError, match=rf"127\.0\.0\.1:{listener.address[1]}"):
                async with rudp.listen("127.0.0.1", listener.address[1], secret=SECRET):
                    pass

    run(story())


def test_a_message_too_long_harms_nothing() -> None:
    async def story() -> None:
        async with two_ends() as (here, there):
            with pytest.raises(LimitExceeded) as raised:
                await here.send(bytes(65_537))
            assert raised.value.limit == "message_bytes_max"
            await here.send(b"word")
            assert await anext(there) == b"word"

    run(story())


def test_an_internal_fault_closes_the_channel_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with two_ends(config=HASTY) as (here, _):

            def broken(*_: object) -> list[Any]:
                raise AssertionError("a fault")

            monkeypatch.setattr(here._socket.endpoint, "step", broken)
            await here.send(b"word")
            with pytest.raises(Closed, match="a fault"):
                await here.drain()

    with contextlib.suppress(WanderbusError):
        run(story())


def test_a_configuration_of_ones_own_keeps_its_values() -> None:
    async def story() -> None:
        async with two_ends(config=HASTY) as (here, _):
            used = here._socket.config
            assert (used.retries_max, used.keepalive_s) == (HASTY.retries_max, None)
            assert not used.consume_at_once, "or nothing would bound what waits to be read"

    run(story())


def test_f09_it_loads_nothing_of_sip_or_events() -> None:
    program = "import json, sys, wanderbus.api.rudp; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ours = {name.split(".")[1] for name in json.loads(done.stdout) if name.startswith("wanderbus.")}
    vocabulary = {"detection", "errors", "hosts", "limits", "machine", "parameters", "refusals", "tokens", "transport"}
    assert ours <= {"api", "rudp", "runtime"} | vocabulary
