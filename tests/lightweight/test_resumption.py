"""Lightweight clients lose nothing and get nothing twice, wherever connections break (SPEC P-02)."""

from __future__ import annotations

from random import Random

import pytest

from tests.lightweight.light_town import LightDevice, LightServer


def pair(seed: int = 0, window_bytes: int = 16_384) -> tuple[LightServer, LightDevice, LightDevice]:
    """A server, a reader that subscribes to all trades, and a publisher."""
    server = LightServer(seed)
    reader = LightDevice(server, "alice", seed + 1, window_bytes)
    publisher = LightDevice(server, "bob", seed + 2)
    reader.want("Trade")
    return server, reader, publisher


def test_p02_events_arrive_in_order() -> None:
    _, reader, publisher = pair()
    reader.settle()
    for n in range(100):
        publisher.publish(n)
    publisher.settle()
    reader.settle()
    assert reader.got == list(range(100))
    assert [each[0] for each in publisher.reports].count("published") == 100


@pytest.mark.parametrize("is_reboot", [False, True], ids=["move", "reboot"])
def test_p02_a_loss_after_every_byte_of_both_clients(is_reboot: bool) -> None:
    for at in range(1, 700, 7):
        _, reader, publisher = pair()
        for n in range(3):
            publisher.publish(n)
        for device in (reader, publisher):
            device.connect()
            left = at
            while left > 0 and device.move(1):
                left -= 1
            device.process()
            if is_reboot:
                device.boot()
            else:
                device.cut()
        for n in range(3, 6):
            publisher.publish(n)
        reader.settle()
        publisher.settle()
        reader.settle()
        assert [n for n in reader.got if n in range(3, 6)] == [3, 4, 5], at
        assert len(reader.got) == len(set(reader.got)), at


@pytest.mark.parametrize("seed", range(40))
def test_p02_losses_reboots_and_restarts_at_random(seed: int) -> None:
    server, reader, publisher = pair(seed, window_bytes=Random(seed).choice((100, 1_000, 16_384)))
    reader.settle()
    draw, published = Random(seed), 0
    for _ in range(40):
        match draw.randrange(12):
            case 0 | 1 | 2 | 3:
                if publisher.core.has_room:
                    publisher.publish(published)
                    published += 1
            case 4:
                draw.choice((reader, publisher)).cut()
            case 5:
                draw.choice((reader, publisher)).boot()
            case 6 if draw.random() < 0.3:
                server.restart()
                reader.cut()
                publisher.cut()
            case 7:
                reader.process(draw.randrange(5))
            case 8:
                server.later(draw.choice((0.1, 1.0, 40.0)))
            case _:
                for device in (reader, publisher):
                    if device.wire is None and device.core.connect_at <= server.now:
                        device.connect()
                    device.move(draw.choice((1, 20, 300, 5_000)))
                    device.core.tick(server.now)
    publisher.settle()
    reader.settle()
    assert reader.got == list(range(published))


def test_p02_a_position_that_was_not_stored_brings_the_items_again() -> None:
    _, reader, publisher = pair()
    reader.settle()
    for n in range(10):
        publisher.publish(n)
    publisher.settle()
    for _ in range(20):
        reader.move()
    assert [reader.core.next_item(0.0).attributes["N"] for _ in range(5)] == [0, 1, 2, 3, 4]  # type: ignore[union-attr]
    reader.boot()
    reader.settle()
    assert reader.got == list(range(10))


def test_p02_the_memory_of_a_client_that_does_not_read_is_its_window() -> None:
    _, reader, publisher = pair(window_bytes=1_000)
    reader.settle()
    for n in range(200):
        publisher.publish(n)
        publisher.settle()
    for _ in range(5):
        for _ in range(100):
            reader.move()
            if reader.wire is None:
                reader.connect()
        assert sum(item.size for item in reader.core._inbox) <= 1_000 + 200
        reader.cut()
    reader.settle()
    assert reader.got == list(range(200))
