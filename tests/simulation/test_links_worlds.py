"""Seeded worlds of links between servers: every promise holds, and a server that lacks a safeguard is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.peers import links
from wanderbus.peers.handshake import LinkKeys
from wanderbus.peers.link_states import OpenLink, PendingLink
from wanderbus.peers.links import ServerLinks
from wanderbus.peers.messages import ServerLinkOpened, ServerMessageReceived
from wanderbus.rudp.endpoint import Endpoint
from wanderbus.rudp.receiving import Receiver
from wanderbus.simulation.scenario import Result
from wanderbus.simulation.server_links.scenario import LinksScenario

SEEDS = range(1, 9)
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [LinksScenario.run_seed(seed) for seed in SEEDS]


def test_every_promise_holds(results: list[Result]) -> None:
    assert [(each.seed, each.problems) for each in results if each.problems] == []


def test_eight_seeds_have_enough_happening_in_them(results: list[Result]) -> None:
    for field, least in (
        ("openings", 120),
        ("closings", 50),
        ("messages", 800),
        ("crashes", 10),
        ("partitions", 5),
        ("injected", 1_000),
        ("dropped", 200),
    ):
        assert sum(result.counts[field] for result in results) > least, field


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (LinksScenario(3, keep_trace=True) for _ in range(2))
    assert first.run() == second.run()
    assert first.world.trace == second.world.trace


def accept_offers_without_a_mac(patch: Patch) -> None:
    patch.setattr(LinkKeys, "is_genuine_offer", lambda self, offer: True)


def replace_the_live_link_by_an_offer(patch: Patch) -> None:
    make = ServerLinks._make_pending

    def made(self: ServerLinks, offer: Any, keys: LinkKeys, now: float) -> bytes:
        answer = make(self, offer, keys, now)
        self._accept(self._pending[offer.opener], now)
        return answer

    patch.setattr(ServerLinks, "_make_pending", made)


def accept_first_packets_unchecked(patch: Patch) -> None:
    patch.setattr(PendingLink, "is_first_packet", lambda self, data: True)


def send_no_keepalives(patch: Patch) -> None:
    endpoint = Endpoint

    def created(random: Any, config: Any, **options: Any) -> Any:
        return endpoint(random, msgspec.structs.replace(config, keepalive_s=None), **options)

    patch.setattr(links, "Endpoint", created)


def keep_pending_links(patch: Patch) -> None:
    patch.setattr(links, "PENDING_S", 1_000.0)


def use_link_numbers_again(patch: Patch) -> None:
    opened = ServerLinks._open

    def reopened(self: ServerLinks, *args: Any, **options: Any) -> OpenLink:
        self._new_link = lambda: 1 + len(self._links)
        return opened(self, *args, **options)

    patch.setattr(ServerLinks, "_open", reopened)


def reverse_the_messages_of_a_batch(patch: Patch) -> None:
    take = Receiver.take
    patch.setattr(Receiver, "take", lambda self, frames: take(self, frames)[::-1])


def report_messages_before_the_opening(patch: Patch) -> None:
    step = ServerLinks.step

    def stepped(self: ServerLinks, inputs: Any, now: float) -> Any:
        order: dict[type, int] = {ServerMessageReceived: 0, ServerLinkOpened: 1}
        return sorted(step(self, inputs, now), key=lambda output: order.get(type(output), 2))

    patch.setattr(ServerLinks, "step", stepped)


def open_a_failed_link_only_once(patch: Patch) -> None:
    patch.setattr(ServerLinks, "_pause", lambda self, own, now: self._discard_opening(own))


@pytest.mark.parametrize(
    ("sabotage", "problem", "seeds"),
    [
        (accept_offers_without_a_mac, "that no server has made", range(1, 5)),
        (replace_the_live_link_by_an_offer, "in a repaired network", range(1, 9)),
        (accept_first_packets_unchecked, "in a repaired network", range(1, 9)),
        (send_no_keepalives, "does not notice", range(1, 9)),
        (keep_pending_links, "still opens or accepts", range(1, 9)),
        (use_link_numbers_again, "is not a new number", range(1, 3)),
        (reverse_the_messages_of_a_batch, "in place of", range(1, 5)),
        (report_messages_before_the_opening, "not open", range(1, 9)),
        (open_a_failed_link_only_once, "has own links with", range(1, 5)),
    ],
)
def test_a_server_without_a_safeguard_is_noticed(
    monkeypatch: Patch, sabotage: Callable[[Patch], None], problem: str, seeds: range
) -> None:
    sabotage(monkeypatch)
    assert is_noticed(LinksScenario.run_seed, seeds, problem)
