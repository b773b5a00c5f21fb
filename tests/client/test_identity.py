"""A user is the same user at every address (SPEC A-05)."""

from __future__ import annotations

from tests.client.town import Town, connected


def keys(town: Town) -> list[str]:
    """Every key of the broker's tables that names users, sessions, devices or subscriptions."""
    state = town.access.broker.state
    return sorted(key for table in (state.sessions, state.devices, state.subscriptions) for key, _ in table.items())


def test_a05_an_address_change_leaves_the_keys_as_they_were() -> None:
    town = Town()
    alice = connected(town)
    rows = {key: row.subscription for key, row in town.access.broker.state.subscriptions.items()}
    before, old_ip = keys(town), alice.ip
    (device,) = town.access.broker.state.devices.values()
    address = device.address
    alice.move("10.1.7.7")
    town.run(1.0)
    (device,) = town.access.broker.state.devices.values()
    assert device.address != address, "the move was noticed"
    assert keys(town) == before
    assert {key: row.subscription for key, row in town.access.broker.state.subscriptions.items()} == rows
    assert not any(ip in key for key in before for ip in (old_ip, alice.ip))
    assert {row.owner for row in rows.values()} == {alice.uri}
