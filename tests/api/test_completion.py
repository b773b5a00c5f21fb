"""Public objects at the interactive prompt: their repr, and their completions."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import wanderbus
from tests.api.world import PASSWORDS, SUBJECT, World, run
from tests.house.test_public_names import MEMBERS
from wanderbus.client.machine.messages import AgentProperties
from wanderbus.client.reports import Reports
from wanderbus.mobility.properties import Properties
from wanderbus.subscription import Subscription


def test_an_agent_shows_user_status_and_way(world: World) -> None:
    async def story() -> None:
        async with world.server():
            alice = world.agent()
            way = f"broker sip:broker@localhost through {world.address}>"
            assert repr(alice) == f"<Agent sip:alice@localhost not open yet; {way}"
            async with alice:
                assert repr(alice) == f"<Agent sip:alice@localhost CONNECTED; {way}"
                assert dir(alice) == sorted(MEMBERS["Agent"])
            assert repr(alice) == f"<Agent sip:alice@localhost closed; {way}"

    run(story())


def test_notifications_show_what_waits(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice:
            notifications = alice.subscribe(SUBJECT, "n > 1")
            assert repr(notifications) == "<Notifications of 'Departure' where 'n > 1', not open>"
            async with notifications:
                await alice.publish(SUBJECT, {"n": 2})
                await alice.publish(SUBJECT, {"n": 3})
                await anext(notifications)
                id = notifications.subscription.id
                assert repr(notifications).startswith(f"<Notifications of 'Departure' where 'n > 1', {id}; ")
                assert repr(notifications).endswith(" waiting, 0 dropped>")
                assert not {"put", "go_on", "end", "fail"} & set(dir(notifications))
                assert {"ack", "dropped", "ended", "subscription"} <= set(dir(notifications))

    run(story())


def test_a_server_shows_where_it_is(world: World) -> None:
    async def story() -> None:
        async with world.server() as server:
            shown = f"<Server of localhost ready at {world.address}; data in {world.directory / 'data'}>"
            assert repr(server) == shown
            assert not [name for name in dir(server) if name.startswith("_")]
        assert "not running" in repr(server)

    run(story())


@pytest.mark.parametrize("secret", PASSWORDS.values())
def test_nothing_shows_a_password(world: World, secret: str) -> None:
    server = wanderbus.Server(domain="localhost", data_dir=world.directory, users=PASSWORDS)
    home = ("127.0.0.1", 5060)
    properties = AgentProperties("sip:alice@localhost", home, "sip:broker@localhost", "", 1, password=secret)
    user = Properties("sip:alice@localhost", home, password=secret)
    shown = repr([server, wanderbus.connect("sip:alice@localhost", password=secret), properties, user])
    assert secret not in shown + repr([properties.__rich_repr__(), user.__rich_repr__()])


def test_values_show_what_was_set() -> None:
    event = wanderbus.Event("Departure", {"Dest": "IAH", "DepDelay": 42.0}, published_us=7)
    position, id = wanderbus.Position(1, 2), wanderbus.EventId("server", 1, 3)
    assert repr(event) == "Event('Departure', {'DepDelay': 42.0, 'Dest': 'IAH'}, published_us=7)"
    assert eval(repr(event), vars(wanderbus) | {"Event": wanderbus.Event}) == event
    assert repr(wanderbus.Notification(event, ("a",), position, id)) == (
        f"Notification(event={event!r}, subscriptions=('a',), position=Position(epoch=1, number=2), "
        "id=EventId(origin='server', incarnation=1, number=3))"
    )
    assert repr(wanderbus.Gap(3, "age_max_s", position)) == (
        "Gap(count=3, reason='age_max_s', position=Position(epoch=1, number=2))"
    )
    assert repr(wanderbus.Frequency.every(1, "hours")) == "Frequency(period_s=3600.0)"
    assert repr(wanderbus.Daily("08:00", "18:00")) == "Daily(start='08:00', end='18:00')"
    assert repr(wanderbus.QueuePolicy(bytes_max=9)) == "QueuePolicy(bytes_max=9)"


def test_a_large_event_takes_a_few_lines() -> None:
    event = wanderbus.Event("Departure", {f"n{n}": "x" * 60_000 for n in range(64)})
    assert len(repr(event)) < 6_000


def test_instants_are_shown_as_dates() -> None:
    ten, eleven = (datetime(2026, 11, 22, hour, tzinfo=UTC) for hour in (10, 11))
    hour = wanderbus.Interval.between(ten, eleven, "away")
    assert repr(hour) == "<Interval 2026-11-22T10:00:00Z to 2026-11-22T11:00:00Z, away>"
    assert repr(wanderbus.Interval(0, 2**63)) == "<Interval 1970-01-01T00:00:00Z to 9223372036854775808 µs>"
    subscription = Subscription("s-1", "sip:bob@localhost", "default", "Departure", "n > 1", hour.end_us, (hour,))
    assert repr(subscription) == (
        "<Subscription s-1: 'Departure' where 'n > 1', of sip:bob@localhost, session 'default', "
        f"until 2026-11-22T11:00:00Z, {hour!r}>"
    )


def test_reports_hide_the_agents_side() -> None:
    async def story() -> None:
        reports: Reports[int] = Reports()
        reports._put(1)
        assert repr(reports) == "<Reports: 1 waiting>"
        assert dir(reports) == []

    run(story())
