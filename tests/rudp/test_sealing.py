"""Sealing: only the peer can open a packet, any change is detected, and keys are updated (RFC 9001 5.3 and 6)."""

from __future__ import annotations

import hmac
import struct

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.rudp import sealing
from wanderbus.rudp.frames import HEADER_BYTES
from wanderbus.rudp.interface import Secrets
from wanderbus.rudp.sealing import SEAL_BYTES, Awake, Sealer

A, B = bytes(range(32)), bytes(range(32, 64))
FRAMES = b"what nobody else may read"
NEVER = 2**23


def header(number: int, epoch: int) -> bytes:
    return struct.pack("!QQBBHQ", 1, 2, 1, epoch & 0xFF, 0, number)


class Talk:
    """A sealer and its peer's; each sealed packet is kept with its number and epoch."""

    def __init__(self, rekey_packets: int = NEVER) -> None:
        self.left = Sealer(Secrets(A, B), rekey_packets)
        self.right = Sealer(Secrets(B, A), rekey_packets)
        self.number = 0

    def seal(self, frames: bytes = FRAMES) -> tuple[bytes, int, int]:
        number, epoch = self.number, self.left.epoch & 0xFF
        self.number += 1
        return self.left.seal(header(number, epoch), number, frames), number, epoch

    def carry(self, packets: int) -> None:
        """Let the peer open and confirm ``packets`` packets, one by one."""
        for _ in range(packets):
            sealed = self.seal()
            assert self.right.open(*sealed) == FRAMES
            self.left.confirmed(sealed[1])


def expand(secret: bytes, label: bytes, n_bytes: int) -> bytes:
    """One block of HKDF-Expand (RFC 5869 2.3), from HMAC alone."""
    return hmac.digest(secret, b"wanderbus rudp " + label + b"\x01", "sha256")[:n_bytes]


@pytest.mark.parametrize("number", [0, 1, 2**40, 2**64 - 1])
def test_a_packet_is_as_computed_by_hand(number: int) -> None:
    nonce = bytes(iv ^ n for iv, n in zip(expand(A, b"iv", 12), number.to_bytes(12, "big"), strict=True))
    expected = AESGCM(expand(A, b"key", 16)).encrypt(nonce, FRAMES, header(number, 0))
    packet = Sealer(Secrets(A, B), NEVER).seal(header(number, 0), number, FRAMES)
    assert packet == header(number, 0) + expected
    assert len(packet) == HEADER_BYTES + len(FRAMES) + SEAL_BYTES


def test_the_next_key_is_as_computed_by_hand() -> None:
    talk = Talk(rekey_packets=1)
    talk.carry(1)
    later = expand(A, b"ku", 32)
    nonce = (int.from_bytes(expand(later, b"iv", 12), "big") ^ 2).to_bytes(12, "big")
    talk.seal()
    packet, number, epoch = talk.seal()
    assert (number, epoch) == (2, 1)
    assert packet[HEADER_BYTES:] == AESGCM(expand(later, b"key", 16)).encrypt(nonce, FRAMES, header(2, 1))


@given(frames=st.binary(max_size=1_200), number=st.integers(0, 2**64 - 1))
def test_the_peer_gets_what_was_sealed(frames: bytes, number: int) -> None:
    packet = Sealer(Secrets(A, B), NEVER).seal(header(number, 0), number, frames)
    assert Sealer(Secrets(B, A), NEVER).open(packet, number, 0) == frames


def test_every_bit_of_a_packet_counts() -> None:
    talk = Talk()
    packet, number, epoch = talk.seal()
    for bit in range(8 * len(packet)):
        altered = bytearray(packet)
        altered[bit // 8] ^= 1 << bit % 8
        assert talk.right.open(bytes(altered), number, epoch) is None, bit
    assert talk.right.open(packet, number, epoch) == FRAMES


def test_a_cut_or_longer_packet_is_forged() -> None:
    talk = Talk()
    packet, number, epoch = talk.seal()
    for size in range(len(packet)):
        assert talk.right.open(packet[:size], number, epoch) is None
    assert talk.right.open(packet + b"\0", number, epoch) is None


def test_a_packet_is_of_one_number_direction_and_pair() -> None:
    talk = Talk()
    packet, number, epoch = talk.seal()
    assert talk.right.open(packet, number + 1, epoch) is None
    assert talk.left.open(packet, number, epoch) is None, "reflected"
    assert Sealer(Secrets(B, bytes(32)), NEVER).open(packet, number, epoch) is None, "another pair"


def test_keys_are_replaced_once_they_have_served_and_are_in_use_there() -> None:
    talk = Talk(rekey_packets=3)
    unconfirmed = [talk.seal() for _ in range(5)]
    assert talk.left.epoch == 0, "the peer may not have got anything yet"
    talk.left.confirmed(unconfirmed[0][1])
    talk.seal()
    assert talk.left.epoch == 1
    talk.left.confirmed(unconfirmed[-1][1])
    for _ in range(4):
        talk.seal()
    assert talk.left.epoch == 1, "a packet of the epoch before says nothing of this one"


def test_a_thousand_epochs() -> None:
    """The epoch's byte goes round; both directions are on their own."""
    talk = Talk(rekey_packets=1)
    talk.carry(2_000)
    assert talk.left.epoch > 900
    assert talk.right.epoch == 0


def test_late_packets_of_the_epoch_before_are_opened() -> None:
    talk = Talk(rekey_packets=1)
    talk.carry(1)
    late = talk.seal()
    talk.carry(1)
    assert talk.left.epoch == late[2] + 1
    assert talk.right.open(*late) == FRAMES
    talk.carry(4)
    assert talk.right.open(*late) is None, "two epochs later it is not"


def test_nothing_forged_moves_the_epoch() -> None:
    talk = Talk()
    packet, number, _ = talk.seal()
    for epoch in range(1, 256):
        forged = header(number, epoch) + packet[HEADER_BYTES:]
        assert talk.right.open(forged, number, epoch) is None
    talk.carry(3)


def test_forging_costs_one_derivation_and_one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    derived: list[bytes] = []
    original = sealing._expand

    def counted(secret: bytes, label: bytes, n_bytes: int) -> bytes:
        derived.append(label)
        return original(secret, label, n_bytes)

    talk = Talk()
    packet, number, _ = talk.seal()
    monkeypatch.setattr(sealing, "_expand", counted)
    for _ in range(10):
        for epoch in range(1, 256):
            assert talk.right.open(packet, number, epoch) is None
    assert derived == [b"ku", b"key", b"iv"]


def test_an_epoch_that_was_never_sealed_under_is_not_the_one_before() -> None:
    talk = Talk()
    assert talk.right.open(talk.seal()[0], 0, 0xFF) is None


@pytest.mark.parametrize("rekey_packets", [1, 3, NEVER])
def test_rest_at_any_time_changes_nothing_on_the_wire(rekey_packets: int) -> None:
    rested, wakeful = Talk(rekey_packets), Talk(rekey_packets)
    late: list[tuple[bytes, int, int]] = []
    for _ in range(12):
        sealed = rested.seal()
        assert sealed == wakeful.seal()
        for sealer in (rested.left, rested.right):
            sealer.rest()
        assert rested.right.open(*sealed) == FRAMES
        for talk in (rested, wakeful):
            talk.left.confirmed(sealed[1])
        assert all(rested.right.open(*packet) == FRAMES for packet in late[-1:]), "of the epoch before"
        for sealer in (rested.left, rested.right):
            sealer.rest()
            assert not has_ciphers(sealer)
        late.append(sealed)


def test_the_sealer_that_woke_first_makes_room_for_another() -> None:
    awake = Awake(2)
    sealers = [Sealer(Secrets(A, B), NEVER, awake) for _ in range(3)]
    for number, sealer in enumerate((*sealers, sealers[0])):
        sealer.seal(header(number, 0), number, FRAMES)
    assert [has_ciphers(sealer) for sealer in sealers] == [True, False, True]


def test_a_forged_packet_of_another_epoch_leaves_no_cipher_with_a_sealer_that_rests() -> None:
    awake = Awake(1)
    sealer, other = Sealer(Secrets(A, B), NEVER, awake), Sealer(Secrets(A, B), NEVER, awake)
    assert sealer.open(header(0, 1) + bytes(40), 0, 1) is None
    other.seal(header(0, 0), 0, FRAMES)
    assert not has_ciphers(sealer)


def has_ciphers(sealer: Sealer) -> bool:
    return any(getattr(sealer, name) is not None for name in ("_encrypt", "_earlier", "_present", "_later"))


def test_nothing_secret_is_ever_shown() -> None:
    shown = repr(Sealer(Secrets(A, B), NEVER))
    assert A.hex()[:8] not in shown
    assert "\\x" not in shown
