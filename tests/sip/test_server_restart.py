"""State that a SIP server restores after a restart, and state that it does not."""

from __future__ import annotations

from tests.sip.phone_world import BOB, PASSWORDS, SERVER, CountingRandom, Phone, World
from wanderbus.sip.message.message import Response
from wanderbus.sip.proxy.sip_server import SIPServer


def test_a_nonce_is_of_one_life_though_the_key_is_kept() -> None:
    """RFC 7616 3.4: the next process has none of the nonce counts, so an overheard request would be valid again."""
    world = World()
    bob = Phone(world, "bob", ("10.0.0.2", 7000))
    assert bob.register().status == 200
    random = CountingRandom()
    random.drawn = 1_000
    world.server = SIPServer("example.org", SERVER, PASSWORDS.get, random, b"k" * 32)
    bob.send(bob.digest.authorize(bob.request("REGISTER", "sip:example.org", to=f"<{BOB}>")))
    (answer,) = bob.take()
    assert isinstance(answer, Response)
    assert answer.status == 401
    assert "stale=true" in (answer.header("WWW-Authenticate") or "").lower()
