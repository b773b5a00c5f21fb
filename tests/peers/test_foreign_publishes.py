"""Refused events of outboxes on the links between servers: the broker keeps their order (decision 0167)."""

from __future__ import annotations

import msgspec
import pytest

from tests.peers.test_leader_sessions import South, publish_for
from wanderbus import protocol
from wanderbus.broker.messages import ForwardPublish, PublishAnswered
from wanderbus.broker.servers.server_users import domain_user

BETA = domain_user("beta.example", "example.org")


@pytest.mark.parametrize("user", ["sip:bob@example.org", BETA])
@pytest.mark.parametrize("limit", ["disk_full", protocol.NUMBER_USED, None])
def test_an_event_behind_a_refused_one_of_an_outbox_is_sent(user: str, limit: str | None) -> None:
    south = South()
    south.attached()
    publishes = [msgspec.structs.replace(publish_for(n, n, outbox=5), user=user) for n in (1, 2)]
    south.give(ForwardPublish("north", publishes[0]))
    refused = protocol.PublishRefused(1, "no", limit, outbox=True)
    assert south.answers("north", refused) == [PublishAnswered(1, None, "no", limit)]
    south.taken()
    assert south.give(ForwardPublish("north", publishes[1])) == []
    assert south.taken() == [publishes[1]]
