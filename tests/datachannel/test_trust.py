"""Authentication of a peer's key; weaker protection than required is refused (SPEC U-05, DESIGN 6.5)."""

from __future__ import annotations

import hashlib
import hmac

import msgspec
import pytest

from tests.datachannel.sides import BOTH, BROKER, FINGERPRINT
from wanderbus.datachannel import ChannelEnd, Parties, channel_secret
from wanderbus.datachannel.trust import hkdf
from wanderbus.errors import SIPParseError
from wanderbus.sip.authentication.digest import ha1

AGENT_SIDE = BOTH
BROKER_SIDE = msgspec.structs.replace(BOTH, role="broker")
SEALED = ChannelEnd(address=BROKER, connection=7, generation=2, key=bytes(range(32)))
PLAIN = ChannelEnd(address=BROKER, connection=7, generation=2)
ACTIVE = ChannelEnd(address=BROKER, connection=7, generation=2, protocol="TCP/TLS", setup="active")
PASSIVE = msgspec.structs.replace(ACTIVE, setup="passive", fingerprint=FINGERPRINT)
PLAIN_TCP = msgspec.structs.replace(ACTIVE, protocol="TCP")


def refusal(parties: Parties, end: ChannelEnd, *, encryption: bool = True) -> str:
    with pytest.raises(SIPParseError) as caught:
        parties.check(end, encryption=encryption)
    assert caught.value.status == 488
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("end", [SEALED, ACTIVE])
def test_the_broker_takes_what_the_agent_signed(end: ChannelEnd) -> None:
    BROKER_SIDE.check(AGENT_SIDE.signed(end), encryption=True)


@pytest.mark.parametrize("end", [SEALED, PASSIVE])
def test_the_agent_takes_what_the_broker_signed(end: ChannelEnd) -> None:
    AGENT_SIDE.check(BROKER_SIDE.signed(end), encryption=True)


@pytest.mark.parametrize("end", [PLAIN, PLAIN_TCP])
def test_plain_ends_are_signed_too(end: ChannelEnd) -> None:
    BROKER_SIDE.check(AGENT_SIDE.signed(end), encryption=False)
    refusal(BROKER_SIDE, end, encryption=False)


@pytest.mark.parametrize(
    ("end", "change"),
    [
        (SEALED, {"key": bytes(32)}),
        (SEALED, {"connection": 8}),
        (SEALED, {"generation": 3}),
        (PASSIVE, {"fingerprint": bytes(32)}),
        (PASSIVE, {"generation": 3}),
    ],
)
def test_a_changed_description_is_refused(end: ChannelEnd, change: dict[str, object]) -> None:
    signed = msgspec.structs.replace(BROKER_SIDE.signed(end), **change)
    assert "signature" in refusal(AGENT_SIDE, signed)


def test_a_relay_may_rewrite_the_address() -> None:
    relayed = msgspec.structs.replace(AGENT_SIDE.signed(SEALED), address=("192.0.2.7", 9))
    BROKER_SIDE.check(relayed, encryption=True)


def test_our_own_description_is_not_accepted_as_the_answer() -> None:
    """Reflection: the MAC covers the direction."""
    assert "signature" in refusal(AGENT_SIDE, AGENT_SIDE.signed(SEALED))
    assert "signature" in refusal(BROKER_SIDE, BROKER_SIDE.signed(SEALED))


@pytest.mark.parametrize(
    "other",
    [
        {"dialog": "call-2"},
        {"agent": "sip:bob@sim.test"},
        {"broker": "sip:broker@elsewhere.test"},
        {"secret": channel_secret(ha1("alice", "sim.test", "guessed"))},
    ],
)
def test_a_description_of_another_dialog_is_refused(other: dict[str, object]) -> None:
    elsewhere = msgspec.structs.replace(AGENT_SIDE, **other)
    assert "signature" in refusal(BROKER_SIDE, elsewhere.signed(SEALED))


def test_an_end_without_mac_is_refused_over_tls_as_well() -> None:
    assert "not signed" in refusal(BROKER_SIDE, SEALED)
    assert "not signed" in refusal(msgspec.structs.replace(BROKER_SIDE, over_tls=True), SEALED)


def test_without_a_password_only_tls_vouches_for_a_key() -> None:
    ignorant = msgspec.structs.replace(BROKER_SIDE, secret=None)
    assert "TLS" in refusal(ignorant, AGENT_SIDE.signed(SEALED))
    msgspec.structs.replace(ignorant, over_tls=True).check(SEALED, encryption=True)
    assert ignorant.signed(SEALED).mac == b""


@pytest.mark.parametrize("end", [SEALED, ACTIVE])
def test_there_is_no_upgrade_of_a_plain_broker(end: ChannelEnd) -> None:
    reason = refusal(BROKER_SIDE, AGENT_SIDE.signed(end), encryption=False)
    assert reason == "the agent encrypts and the broker does not: give --no-encryption to both, or to neither"


@pytest.mark.parametrize("end", [PLAIN, PLAIN_TCP])
def test_there_is_no_downgrade_in_either_direction(end: ChannelEnd) -> None:
    reason = refusal(BROKER_SIDE, AGENT_SIDE.signed(end))
    assert reason == "the broker encrypts and the agent does not: give --no-encryption to both, or to neither"
    refusal(AGENT_SIDE, BROKER_SIDE.signed(msgspec.structs.replace(end, setup="passive" if end.setup else "")))


@pytest.mark.parametrize(("setup", "taken"), [("active", True), ("actpass", True), ("passive", False), ("", False)])
def test_the_agent_is_the_one_that_connects(setup: str, taken: bool) -> None:
    signed = AGENT_SIDE.signed(msgspec.structs.replace(ACTIVE, setup=setup))
    if taken:
        BROKER_SIDE.check(signed, encryption=True)
    else:
        assert "active" in refusal(BROKER_SIDE, signed)


@pytest.mark.parametrize("setup", ["active", "holdconn", ""])
def test_a_broker_that_wants_to_connect_is_refused(setup: str) -> None:
    assert "active" in refusal(AGENT_SIDE, BROKER_SIDE.signed(msgspec.structs.replace(PASSIVE, setup=setup)))


def test_a_broker_over_tls_shows_its_certificate() -> None:
    assert "fingerprint" in refusal(AGENT_SIDE, BROKER_SIDE.signed(msgspec.structs.replace(PASSIVE, fingerprint=b"")))


def test_the_context_of_a_connection_is_the_same_on_both_sides_and_nowhere_else() -> None:
    assert AGENT_SIDE.context(1, 2) == BROKER_SIDE.context(2, 1)
    others = {AGENT_SIDE.context(2, 1), msgspec.structs.replace(AGENT_SIDE, dialog="call-2").context(1, 2)}
    assert AGENT_SIDE.context(1, 2) not in others


def test_the_channel_secret_can_be_computed_with_the_standard_library() -> None:
    """The documentation shows it for clients in other languages: HKDF-SHA256 of HA1 (RFC 5869, RFC 7616 3.4.2)."""
    secret_of_digest = hashlib.sha256(b"alice:sim.test:secret").hexdigest().encode()
    extracted = hmac.digest(bytes(32), secret_of_digest, "sha256")
    assert BOTH.secret == hmac.digest(extracted, b"wanderbus channel secret 1\x01", "sha256")


def test_hkdf_is_that_of_rfc_5869() -> None:
    """RFC 5869 A.3: no salt, no info."""
    assert hkdf(b"\x0b" * 22, b"").hex() == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"


def test_nothing_shows_the_secret() -> None:
    assert BOTH.secret is not None
    shown = f"{BOTH!r} {BOTH.__rich_repr__()}"
    assert repr(BOTH.secret) not in shown
    assert BOTH.secret.hex() not in shown
