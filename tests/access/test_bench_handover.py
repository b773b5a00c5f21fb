"""Preparations of ``bench handover``: sessions that are stored, and hosts with a delay between them."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from bench.stored_sessions import store_sessions
from harness.server_hosts import missing, server_hosts
from wanderbus.broker.state.state import BrokerState
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.testbed.namespaces import inside

USERS = [f"away{number}" for number in range(3)]
DELAY_S = 0.1


def test_each_stored_session_has_a_subscription_and_an_event_that_waits(tmp_path: Path) -> None:
    store_sessions(tmp_path / "data", "s1", USERS, "News")
    files = ServerFiles.open(tmp_path / "data")
    (state,) = files.load_states(lambda: [BrokerState(files.identity.server, 100)])
    files.close()
    found = {each.user: (len(each.subscriptions), each.waiting) for each in state.sessions.values()}
    assert files.identity.server == "s1"
    assert found == {f"sip:{user}@localhost": (1, 1) for user in USERS}
    assert not any(each.status == "CONNECTED" for each in state.devices.values())


@pytest.mark.integration
@pytest.mark.skipif(missing() is not None, reason=f"no hosts: {missing()}")
def test_servers_are_apart_from_each_other_and_reach_their_clients() -> None:
    def opened(namespace: str, address: str) -> socket.socket:
        def make() -> socket.socket:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.settimeout(30.0)
            made.bind((address, 0))
            return made

        return inside(namespace, make)

    with server_hosts(3, DELAY_S) as hosts:
        places = [hosts.place(number, ()) for number in (1, 2, 3)]
        links = [opened(name, place.link_host) for name, place in zip(hosts.servers, places, strict=True)]
        near = opened(hosts.servers[1], places[1].host)
        client = opened(hosts.clients, "10.76.1.1")
        try:
            for one, other in ((links[0], links[1]), (links[1], links[2]), (links[2], links[0])):
                began_s = time.monotonic()
                one.sendto(b"x", other.getsockname())
                assert other.recvfrom(9)[1] == one.getsockname()
                assert time.monotonic() - began_s >= DELAY_S
            client.sendto(b"x", near.getsockname())
            near.sendto(b"y", near.recvfrom(9)[1])
            assert client.recvfrom(9) == (b"y", near.getsockname()), "it keeps the address of its first server"
        finally:
            for each in (*links, near, client):
                each.close()
