"""Refused events of foreign domains on the links between servers: the broker keeps their order (decision 0161)."""

from __future__ import annotations

import msgspec
import pytest

from tests.peers.test_leader_sessions import South, publish_for
from wanderbus import protocol
from wanderbus.broker.messages import ForwardPublish
from wanderbus.broker.servers.server_users import domain_user


@pytest.mark.parametrize("limit", ["disk_full", protocol.NUMBER_USED])
def test_an_event_behind_a_refused_one_of_a_foreign_domain_is_sent(limit: str) -> None:
    south = South()
    south.attached()
    publishes = [
        msgspec.structs.replace(publish_for(n, n, outbox=5), user=domain_user("beta.example", "example.org"))
        for n in (1, 2)
    ]
    south.give(ForwardPublish("north", publishes[0]))
    south.answers("north", protocol.PublishRefused(1, "no", limit, outbox=True))
    south.taken()
    assert south.give(ForwardPublish("north", publishes[1])) == []
    assert south.taken() == [publishes[1]]
