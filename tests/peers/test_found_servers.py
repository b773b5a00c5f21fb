"""Links with servers whose addresses become known later, as those of gateways in the DNS (SPEC S-01; decision 0171)."""

from __future__ import annotations

import pytest

from tests.peers.test_links import Domain
from wanderbus.errors import ConfigurationError
from wanderbus.peers.messages import ConnectServer, KnowServers, SendOnServerLink, ServerLinkClosed

A, B = "x/a", "y/b"


class Found(Domain):
    """Servers x/a and y/b, which know the keys of each other's groups and no address."""

    def __init__(self) -> None:
        super().__init__(A, B)
        for name, other in ((A, B), (B, A)):
            self.nodes[name].kill()
            self.start(name, servers={}, found_later={other[0]: self.keys[other].public})

    def find(self, name: str, *servers: str) -> None:
        """Let a server know these of the other group."""
        known = KnowServers("y" if name == A else "x", tuple([(each, self.addresses[each]) for each in servers]))
        self.feed(name, known)


def test_a_link_opens_to_a_server_that_is_found_in_the_same_batch() -> None:
    domain = Found()
    domain.find(B, A)
    domain.feed(A, KnowServers("y", ((B, domain.addresses[B]),)), ConnectServer(B))
    domain.run(0.5)
    domain.feed(A, SendOnServerLink(domain.link(A, is_ours=True), b"x"))
    domain.run(0.5)
    assert [payload for _, payload in domain.received(B)] == [b"x"]


def test_the_offer_of_a_server_that_is_not_found_yet_is_not_answered() -> None:
    domain = Found()
    domain.find(A, B)
    domain.feed(A, ConnectServer(B))
    domain.run(1.0)
    assert domain.links(A) == {}
    assert domain.machines[B].dropped["unknown server"] > 0
    domain.find(B, A)
    domain.run(3.0)
    assert len(domain.links(A)) == 1


def test_the_same_servers_again_change_nothing() -> None:
    domain = Found()
    domain.find(B, A)
    domain.find(A, B)
    domain.feed(A, ConnectServer(B))
    domain.run(0.5)
    before = domain.links(A)
    domain.find(A, B)
    domain.find(B, A)
    domain.run(5.0)
    assert domain.links(A) == before != {}


def test_a_server_that_is_not_found_any_more_is_forgotten_with_its_links() -> None:
    domain = Found()
    domain.find(B, A)
    domain.find(A, B)
    domain.feed(A, ConnectServer(B))
    domain.run(0.5)
    domain.find(B)
    domain.find(A)
    assert domain.links(A) == domain.links(B) == {}
    closed = [each for _, name, each in domain.reports if name == B and isinstance(each, ServerLinkClosed)]
    assert [each.reason for each in closed] == ["its address is not that of a server any more"]
    with pytest.raises(ConfigurationError, match="is not another server"):
        domain.machines[A].step([ConnectServer(B)], domain.world.now)
    domain.run(10.0)
    assert domain.links(A) == {}


def test_a_server_with_another_address_is_called_there() -> None:
    domain = Found()
    domain.find(B, A)
    domain.feed(A, KnowServers("y", ((B, ("10.0.0.99", 5601)),)), ConnectServer(B))
    domain.run(2.0)
    assert domain.links(A) == {}
    domain.feed(A, KnowServers("y", ((B, domain.addresses[B]),)), ConnectServer(B))
    domain.run(1.0)
    assert len(domain.links(A)) == 1


def test_servers_of_another_group_cannot_be_found() -> None:
    domain = Found()
    for group, server in (("z", "z/c"), ("y", "z/c")):
        domain.feed(A, KnowServers(group, ((server, domain.addresses[B]),)))
        with pytest.raises(ConfigurationError, match="is not another server"):
            domain.machines[A].step([ConnectServer(server)], domain.world.now)
