"""The broker counts what its bounds refuse and drop, and lists limited users to those who may see them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.broker.desk import ALICE, BOB
from tests.broker.office import ADAM, OLGA, ROLES, Office, inspected, refusal, with_queue
from wanderbus.broker.messages import ServerAnswered, ServerAsked
from wanderbus.broker.sessions.visitor_limit import limit_reached
from wanderbus.parameters.broker import BrokerConfig, setting_of
from wanderbus.protocol import Attach, Inspect
from wanderbus.refusals import Limited
from wanderbus.subscription import QueuePolicy

ROWS = (
    {"limit": "flood.requests_per_s", "party": "10.0.0.9", "count": 3},
    {"limit": "broker.user_devices_max", "party": BOB, "count": 2},
    {"limit": "broker.user_devices_max", "party": ALICE, "count": 1},
    {"limit": "flood.requests_per_s", "party": "10.0.0.1", "count": 4},
)
OWN_SOURCE = "10.0.0.1"


class Server(Office):
    """An office inside a server that adds its own counters; all data channels come from one source."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.limited: list[Limited] = []
        super().__init__(config)

    def perform(self, outputs: Any) -> None:
        super().perform(outputs)
        for output in outputs:
            match output:
                case Limited():
                    self.limited.append(output)
                case ServerAsked():
                    asked = msgspec.structs.replace(output, sources=(OWN_SOURCE,))
                    self.give(ServerAnswered(asked, ROWS))


def parties(server: Server, user: str, whose: str | None = None, most: int = 1_000) -> list[tuple[str, int]]:
    return [(row["party"], row["count"]) for row in inspected(server, server.attach(user), "limits", whose, most)]


@pytest.mark.parametrize("most", [1, 2, 1_000])
def test_an_operator_sees_everybody_in_steps(most: int) -> None:
    assert parties(Server(), OLGA, None, most) == [(ALICE, 1), (BOB, 2), (OWN_SOURCE, 4), ("10.0.0.9", 3)]
    assert parties(Server(), ADAM, BOB, most) == [(BOB, 2)]


def test_users_see_what_limits_themselves_and_their_own_source() -> None:
    assert parties(Server(), ALICE) == [(ALICE, 1), (OWN_SOURCE, 4)]
    assert parties(Server(), BOB, BOB) == [(BOB, 2), (OWN_SOURCE, 4)]
    server = Server()
    assert "need the role" in refusal(server, server.attach(BOB), Inspect(3, "limits", ALICE))
    assert "need the role" in refusal(server, server.attach(BOB), Inspect(4, "bounds", None))


def test_the_answer_for_a_link_that_is_gone_goes_nowhere() -> None:
    server = Server()
    link = server.attach()
    server.close(link)
    server.give(ServerAnswered(ServerAsked(link, Inspect(9, "limits", None)), ROWS))


def test_refusals_and_drops_of_bounds_are_reported_with_their_settings() -> None:
    server = Server(BrokerConfig(roles=ROLES, sessions_max=1, queue=QueuePolicy(notifications_max=2)))
    with_queue(server, 1, 2, 3)
    link = server.open(ALICE, "second")
    server.send(link, Attach(1, "another", None, True))
    assert server.limited == [
        Limited("broker.queue.notifications_max", ALICE, "dropped from session default"),
        Limited("broker.sessions_max", ALICE, limit_reached("sessions_max", 1).reason),
    ]


def test_a_flood_of_drops_is_reported_once_a_second() -> None:
    server = Server(BrokerConfig(roles=ROLES, queue=QueuePolicy(notifications_max=1)))
    with_queue(server, *range(100))
    assert [each.count for each in server.limited] == [1]
    server.later(1.0)
    server.give()
    assert sum(each.count for each in server.limited) == 99


def test_every_bound_has_the_name_of_its_setting() -> None:
    assert setting_of("user_subscriptions_max") == "broker.user_subscriptions_max"
    assert setting_of("queue.bytes_max") == "broker.queue.bytes_max"
    assert setting_of("disk_full") == "disk_reserve_bytes"
    assert setting_of("restrictions_max") == "limits.RESTRICTIONS_MAX"
