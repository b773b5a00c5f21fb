"""The listing of the other servers: the broker's part of the rows, and who may see them (SPEC J-01)."""

from __future__ import annotations

from typing import Any

from tests.broker.desk import BOB
from tests.broker.office import OLGA, Office, inspected, refusal
from wanderbus.broker.messages import ServerAnswered, ServerAsked
from wanderbus.broker.servers.server_users import server_of, server_user
from wanderbus.protocol import Inspect

ROWS = ({"server": "s2", "is_linked": True}, {"server": "s3"})


class Server(Office):
    """An office inside a server of a domain."""

    def perform(self, outputs: Any) -> None:
        super().perform(outputs)
        for output in outputs:
            if isinstance(output, ServerAsked) and output.request.what == "servers":
                self.give(ServerAnswered(output, ROWS))


def test_an_operator_sees_the_other_servers_in_steps() -> None:
    server = Server()
    for limit in (1, 10):
        assert inspected(server, server.attach(OLGA), "servers", None, limit) == list(ROWS)


def test_others_do_not() -> None:
    server = Server()
    assert refusal(server, server.attach(BOB), Inspect(4, "servers", None)).endswith("servers need the role 'operator'")


def test_the_rows_of_one_user_are_none() -> None:
    server = Server()
    assert inspected(server, server.attach(OLGA), "servers", BOB) == []


def test_the_user_of_a_server_has_its_name() -> None:
    assert server_of(server_user("s1", "example.org"), "example.org") == "s1"
    assert server_of("sip:alice@example.org", "example.org") is None
    assert server_of("sip:s1@servers.example.net", "example.org") is None
