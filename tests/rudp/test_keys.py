"""Key agreement: two key pairs give the same secrets on both sides, and no other pair does (RFC 7748, RFC 5869)."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from rich.pretty import pretty_repr

from wanderbus.errors import RemoteProtocolError
from wanderbus.rudp.interface import Secrets
from wanderbus.rudp.keys import KeyPair

ALICE = KeyPair(bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"))
BOB = KeyPair(bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"))
SHARED = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
"""The keys of RFC 7748 6.1 and their shared secret."""

SALT, CONTEXT = b"salt", b"context"


def between(ours: KeyPair, theirs: KeyPair, first: bool, salt: bytes = SALT, context: bytes = CONTEXT) -> Secrets:
    return ours.secrets(theirs.public, salt=salt, context=context, first=first)


def hkdf(secret: bytes, salt: bytes, info: bytes, n_bytes: int) -> bytes:
    """RFC 5869, from HMAC alone."""
    key = hmac.digest(salt, secret, "sha256")
    out = block = b""
    for count in range(1, -(-n_bytes // hashlib.sha256().digest_size) + 1):
        block = hmac.digest(key, block + info + bytes([count]), "sha256")
        out += block
    return out[:n_bytes]


def test_public_keys_are_those_of_rfc_7748() -> None:
    assert ALICE.public.hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert BOB.public.hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"


def test_secrets_are_as_rfc_5869_derives_them() -> None:
    info = b"wanderbus rudp secrets" + ALICE.public + BOB.public + CONTEXT
    expected = hkdf(SHARED, SALT, info, 64)
    alice = between(ALICE, BOB, first=True)
    assert (alice.sending, alice.receiving) == (expected[:32], expected[32:])


def test_each_side_opens_packets_of_the_other() -> None:
    alice, bob = between(ALICE, BOB, first=True), between(BOB, ALICE, first=False)
    assert (alice.sending, alice.receiving) == (bob.receiving, bob.sending)
    assert alice.sending != alice.receiving


@pytest.mark.parametrize(
    "other",
    [
        between(ALICE, BOB, True, salt=b"another"),
        between(ALICE, BOB, True, context=b"another"),
        between(ALICE, KeyPair(bytes(32)), True),
        between(ALICE, BOB, False),
    ],
    ids=["salt", "context", "peer", "role"],
)
def test_everything_given_counts(other: Secrets) -> None:
    mine = between(ALICE, BOB, first=True)
    assert not {mine.sending, mine.receiving} & {other.sending}


@pytest.mark.parametrize(
    "public",
    [b"", bytes(31), bytes(33), bytes(32), bytes([1]) + bytes(31), (2**255 - 19 - 1).to_bytes(32, "little")],
    ids=["empty", "short", "long", "zero", "one", "minus one"],
)
def test_an_unusable_public_key_is_refused(public: bytes) -> None:
    """Also those of low order, with which everybody would get the same secret (RFC 7748 6.1)."""
    with pytest.raises(RemoteProtocolError, match="public key") as raised:
        ALICE.secrets(public, salt=SALT, context=CONTEXT, first=True)
    assert "\n" not in str(raised.value)


def test_nothing_secret_is_ever_shown() -> None:
    secrets = between(ALICE, BOB, first=True)
    shown = f"{secrets} {secrets!r} {pretty_repr(secrets)} {ALICE} {pretty_repr(ALICE)}"
    for hidden in (secrets.sending, secrets.receiving):
        assert repr(hidden)[2:10] not in shown
        assert hidden.hex()[:8] not in shown
    assert repr(secrets) == pretty_repr(secrets) == "Secrets()"
