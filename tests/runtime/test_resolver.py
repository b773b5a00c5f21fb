"""Server addresses as people write them, and the world's clock and randomness."""

from __future__ import annotations

import time

import pytest

from wanderbus.errors import ConfigurationError
from wanderbus.runtime.net.resolver import resolve, target_in
from wanderbus.runtime.system_random import SystemRandom, wall_us


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1", ("127.0.0.1", 5060)),
        ("127.0.0.1:5070", ("127.0.0.1", 5070)),
        ("localhost:5070", ("127.0.0.1", 5070)),
        ("[::1]:5070", ("::1", 5070)),
        ("[::1]", ("::1", 5060)),
        ("::1", ("::1", 5060)),
        ("[0:0::1]:5070", ("::1", 5070)),
        ("[2001:DB8::A]", ("2001:db8::a", 5060)),
        ("[::ffff:7f00:1]:5070", ("127.0.0.1", 5070)),
    ],
)
def test_host_and_port_are_read(text: str, address: tuple[str, int]) -> None:
    assert resolve(text) == address


@pytest.mark.parametrize(
    ("text", "host"),
    [("[0:0::1]:5070", "::1"), ("[2001:DB8::A]:5070", "2001:db8::a"), ("Phone.example:5070", "Phone.example")],
)
def test_an_address_has_the_form_in_which_answers_come_from_there(text: str, host: str) -> None:
    """An agent of the original ECI listens to that address alone."""
    assert target_in(text) == (host, 5070)


@pytest.mark.parametrize(
    "text", ["127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:sip", "a..b:5060", "", ":5060", "[::1]x:1"]
)
def test_invalid_addresses_are_quoted(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_wall_clock_is_in_microseconds() -> None:
    assert abs(wall_us() - time.time() * 1e6) < 1e6


def test_randomness_has_the_asked_size_and_range() -> None:
    random = SystemRandom()
    assert len(random.token(16)) == 16
    assert random.token(16) != random.token(16)
    assert all(0.2 <= random.uniform(0.2, 1.0) <= 1.0 for _ in range(100))
