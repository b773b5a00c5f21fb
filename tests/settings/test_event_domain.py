"""File of an event domain (SPEC J-01, K-01)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wanderbus.errors import ConfigurationError
from wanderbus.settings.event_domain import EventDomain, EventDomainSettings
from wanderbus.settings.reading import make, read

KEY = "ab" * 32
FILE = f"""
name = "example.org"
hash_key = "{KEY}"
groups = 16

[servers.s1]
address = "127.0.0.1:5601"
public_key = "{KEY}"

[servers.s2]
address = "127.0.0.2:5601"
public_key = "{KEY}"
roles = ["access", "resolution"]

[pins]
Flight = 3

[parents]
Departure = "Flight"

[channels.Flight]
model = "decentralised"
merging = "adaptive"
precision_min = 0.8
"""


def domain(text: str) -> EventDomain:
    return EventDomain(make(EventDomainSettings, read(EventDomainSettings, text, Path("domain.toml"))))


def test_a_file_describes_servers_and_channels() -> None:
    found = domain(FILE)
    assert found.settings.servers_with("resolution") == ("s1", "s2")
    assert found.settings.servers_with("directory") == ("s1",)
    flight, departure, stock = map(found.channel, ("Flight", "Departure", "Stock"))
    assert (flight.group, flight.epoch, flight.leader in ("s1", "s2")) == (3, 1, True)
    assert (departure.group, departure.leader) == (3, flight.leader)
    for each in (flight, departure):
        assert (each.model, each.merging, each.precision_min) == ("decentralised", "adaptive", 0.8)
    assert (stock.model, stock.merging, stock.precision_min) == ("ordered", "perfect", None)


def test_advertisements_are_required_in_a_domain_or_in_some_channels() -> None:
    some = domain(FILE.replace("precision_min = 0.8", 'advertisements = "required"', 1))
    assert [some.channel(each).advertisements for each in ("Flight", "Departure", "Stock")] == [
        *("required", "required", "optional")
    ]
    assert some.requires_advertisements("*"), "all decentralised channels require them"
    everything = 'groups = 16\nmodel = "decentralised"\nadvertisements = "required"'
    assert domain(FILE.replace("groups = 16", everything)).requires_advertisements("*")
    but_one = FILE.replace("groups = 16", everything).replace("precision_min = 0.8", 'advertisements = "optional"', 1)
    found = domain(but_one)
    assert [found.requires_advertisements(each) for each in ("Stock", "Flight", "*")] == [True, False, False]
    with pytest.raises(ConfigurationError, match="advertisements: they can be required in decentralised channels only"):
        domain(FILE.replace("groups = 16", 'advertisements = "required"').replace("decentralised", "ordered"))


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        (
            'model = "decentralised"',
            'model = "ordered"\nadvertisements = "required"',
            "channels.Flight.advertisements: they can be required in decentralised channels only; set its model",
        ),
        (
            "precision_min = 0.8",
            'advertisements = "maybe"',
            "channels.Flight.advertisements: invalid value 'maybe' (expected",
        ),
        ("groups = 16", "groups = 0", "groups: 0 is out of range"),
        ("127.0.0.2:5601", "127.0.0.2", "servers.s2.address: '127.0.0.2' is not host:port"),
        ("127.0.0.2:5601", "127.0.0.2:65536", "servers.s2.address: '127.0.0.2:65536' is not host:port"),
        (f'hash_key = "{KEY}"', 'hash_key = "ab"', "hash_key is not a key of 64 hexadecimal digits"),
        (f'public_key = "{KEY}"', 'public_key = "xy"', "servers.s1.public_key is not a key"),
        ('["access", "resolution"]', '["access", "directory"]', "s1 and s2 have the role directory; leave it to one"),
        ('["access", "resolution"]', '["reader"]', "servers.s2.roles: invalid value ['reader'] (expected"),
        ("roles =", "role =", "servers.s2.role: unknown key (expected address, public_key, roles"),
        ("precision_min = 0.8", "precision_min = 1.5", "channels.Flight.precision_min: 1.5 is out of range"),
        ("[channels.Flight]", "[channels.Departure]", "'Departure' has the channel of 'Flight'; set that"),
        ('Departure = "Flight"', 'Departure = "Flight"\nFlight = "Departure"', "is its own ancestor"),
        ("Flight = 3", "Flight = 16", "'Flight' is pinned to 16 (expected a group, 0 to 15)"),
        ('name = "example.org"', "", "name must be given"),
        ("[pins]", "[multicast]\n[pins]", "multicast.group: it is not given (expected an IPv4 multicast address"),
        ("[pins]", '[multicast]\ngroup = "192.0.2.1:5602"\n[pins]', "multicast.group: '192.0.2.1:5602' is none"),
        ("[pins]", '[multicast]\ngroup = "239.255.7.1"\n[pins]', "multicast.group: '239.255.7.1' is none"),
        ("[pins]", '[multicast]\ngroup = "[ff02::1]:5602"\n[pins]', "multicast.group: '[ff02::1]:5602' is none"),
        ("[pins]", "[multicast]\nttl = 256\n[pins]", "multicast.ttl: invalid value 256"),
    ],
)
def test_a_contradiction_is_refused_by_its_key(old: str, new: str, error: str) -> None:
    assert old in FILE
    with pytest.raises(ConfigurationError, match=re.escape(error)):
        domain(FILE.replace(old, new, 1))


MULTICAST = '[multicast]\ngroup = "239.255.7.1:5602"'


def test_a_multicast_group_is_off_unless_the_table_is_there() -> None:
    assert domain(FILE).multicast_group is None
    found = domain(f"{FILE}\n{MULTICAST}\n")
    assert found.multicast_group == ("239.255.7.1", 5602)
    assert found.settings.multicast is not None
    assert (found.settings.multicast.interface, found.settings.multicast.ttl) == (None, 1)


def test_a_multicast_group_needs_decentralised_channels_and_an_interface() -> None:
    text = f"{FILE}\n{MULTICAST}\n"
    with pytest.raises(ConfigurationError, match="multicast: it serves decentralised channels only; set the model"):
        domain(text.replace('model = "decentralised"', 'model = "ordered"'))
    by_name = text.replace("127.0.0.2:5601", "two.example.org:5601")
    with pytest.raises(ConfigurationError, match=r"multicast\.interface: s2 has no IPv4 address .*; name one"):
        domain(by_name)
    assert domain(f'{by_name}interface = "eth0"\n').multicast_group is not None


def test_a_domain_needs_a_server_of_each_role() -> None:
    one = FILE.replace(f'public_key = "{KEY}"', f'public_key = "{KEY}"\nroles = ["access"]', 1)
    with pytest.raises(ConfigurationError, match="no server has the role directory; give it to one of them"):
        domain(one)
