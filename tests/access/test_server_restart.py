"""A restarted server and its agents find each other again (DESIGN 5.1, 6.3)."""

from __future__ import annotations

import pytest

from tests.client.town import DATA_ADDRESS, Town, connected
from wanderbus.client.machine.messages import PublishSettled
from wanderbus.simulation.server import SERVER_IP


@pytest.fixture
def town() -> Town:
    return Town()


def restart(town: Town, *, lose_rows: bool = False, down_s: float = 0.5) -> None:
    town.server.crash(lose_rows=lose_rows)
    town.run(down_s)
    town.server.start()


@pytest.mark.parametrize("lose_rows", [False, True])
def test_design_6_3_after_a_restart_idle_sessions_are_renewed_by_the_server(town: Town, lose_rows: bool) -> None:
    alice, bob = connected(town), connected(town, "bob", number=2)
    town.run(6.0)
    restart(town, lose_rows=lose_rows, down_s=0.1)
    at = town.world.now
    town.run(2.0)
    renewals = [s for s in town.since(at) if s.method == "INVITE" and s.source == (SERVER_IP, 5070)]
    assert {s.destination for s in renewals} == {(alice.ip, 5060), (bob.ip, 5060)}
    assert renewals[1].at - renewals[0].at == pytest.approx(0.01)
    assert town.access.broker.status(alice.uri) == town.access.broker.status(bob.uri) == "CONNECTED"
    bob.publish(1)
    town.run(0.5)
    assert alice.received == bob.received == [1]


def test_design_6_3_an_agent_whose_tcp_connection_went_in_silence_is_renewed_over_tcp(town: Town) -> None:
    alice = connected(town, data_transport="TCP")
    town.network.cut(alice.ip)
    restart(town, down_s=0.1)
    town.network.mend(alice.ip)
    at = town.world.now
    town.run(2.0)
    renewal = next(s.data for s in town.since(at) if s.method == "INVITE" and s.source == (SERVER_IP, 5070))
    assert b"m=application 5072 TCP/TLS x-wanderbus\r\n" in renewal
    assert b"a=setup:passive\r\n" in renewal
    assert town.access.broker.status(alice.uri) == "CONNECTED"
    alice.publish(1)
    town.run(0.5)
    assert alice.received == [1]


def test_design_6_3_a_sending_agent_learns_of_the_restart_by_a_reset_and_comes_itself(town: Town) -> None:
    alice = connected(town)
    restart(town, down_s=0.05)
    at = town.world.now
    alice.publish(1)
    town.run(2.0)
    resets = [s for s in town.since(at) if s.source == DATA_ADDRESS and s.data[16:17] == b"\x02"]
    reinvites = [s for s in town.since(at) if s.method == "INVITE"]
    assert resets
    assert reinvites[0].source == (alice.ip, 5060)
    assert "the broker was restarted" in [change.reason for change in alice.reports if hasattr(change, "reason")]
    assert alice.received == [1]
    assert len(alice.all_of(PublishSettled)) == 1


def test_design_6_3_over_tcp_too_a_sending_agent_learns_of_the_restart_and_comes_itself(town: Town) -> None:
    alice = connected(town, data_transport="TCP")
    restart(town, down_s=0.05)
    at = town.world.now
    alice.publish(1)
    town.run(2.0)
    reinvites = [s for s in town.since(at) if s.method == "INVITE"]
    assert reinvites[0].source == (alice.ip, 5060)
    assert "the broker was restarted" in [change.reason for change in alice.reports if hasattr(change, "reason")]
    assert alice.received == [1]


def test_design_5_1_a_publish_in_flight_over_a_power_cut_is_published_once(town: Town) -> None:
    """Just after the write and before the sync: the worst moment."""
    alice, bob = connected(town), connected(town, "bob", number=2)
    for n in range(1, 6):
        cut = {"once": True}

        def crash(cut: dict[str, bool] = cut) -> None:
            if cut.pop("once", False):
                town.world.after(0.0001, lambda: town.server.crash(lose_rows=False))

        town.server.disk.on_append = crash
        bob.publish(n)
        town.run(0.3)
        town.server.start()
        town.run(5.0)
    assert alice.received == bob.received == [1, 2, 3, 4, 5]
    assert town.server.crashes == 5


def test_an_agent_that_moved_while_the_server_was_down_is_found_again(town: Town) -> None:
    alice, bob = connected(town), connected(town, "bob", number=2)
    town.server.crash(lose_rows=True)
    alice.move("10.1.8.8")
    town.run(3.0)
    town.server.start()
    town.run(10.0)
    bob.publish(1)
    town.run(1.0)
    assert alice.received == [1]
