"""Fuzzing of the parsers of SIP messages, session descriptions and digest values (RFC 3261, RFC 4566, RFC 7616).

Inputs are mutations of the corpus in tests/sip/corpus, inputs made from the grammar, mutations of those, and noise. Any
input may only raise :class:`SIPParseError`, and accepted input is written and has to be parsed the same again: this is
measured. A response is made for rejected input where one is due. One message in eight is also judged and taken apart as
``wanderbus sip parse`` does, which never raises.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final

from fuzz import sip_grammar
from fuzz.mutation import mutated
from fuzz.target_runs import Broken, Target
from wanderbus.errors import SIPParseError
from wanderbus.limits import SIP_MESSAGE_BYTES_MAX
from wanderbus.sip.authentication.digest_values import SUPPORTED, Challenge, Credentials, response_digest
from wanderbus.sip.message.dissection import dissect
from wanderbus.sip.message.inspection import ElementRole, inspect
from wanderbus.sip.message.message import Message, encode_message, make_response, parse_message, read_for_reply
from wanderbus.sip.message.sdp import SessionDescription

CORPUS: Final = Path(__file__).resolve().parents[1] / "tests" / "sip" / "corpus"
STATUSES: Final = (None, 400, 501, 505, 513)
INSPECTED_EACH: Final = 8
BYTES_MAX: Final = SIP_MESSAGE_BYTES_MAX + 100
NOT_THE_SAME: Final = "it is not read as it was written"
NOISE_BYTES_MAX: Final = 400
SWOLLEN: Final = 0.003
"""Share of messages of the largest size, which take as long as a hundred others."""


def make_message(random: Random) -> bytes:
    """Return something like a message."""
    if random.random() < SWOLLEN:
        return sip_grammar.swollen(random)
    return _made(random, "sip", sip_grammar.message)


def make_description(random: Random) -> bytes:
    """Return something like a session description."""
    return _made(random, "sdp", sip_grammar.description)


def make_digest(random: Random) -> bytes:
    """Return something like a challenge or credentials."""
    return _made(random, "digest", random.choice((sip_grammar.challenge, sip_grammar.credentials)))


def handle_message(data: bytes) -> bool:
    """Read and write a message."""
    try:
        message = parse_message(data)
    except SIPParseError as error:
        if error.status not in STATUSES:
            raise Broken(f"status {error.status} is not among those declared") from None
        return False
    if parse_message(encode_message(message)) != message:
        raise Broken(NOT_THE_SAME)
    return True


def examine_message(data: bytes) -> None:
    """Examine a message in every way, or answer one that could not be parsed; judge some, as the command does."""
    try:
        _use(parse_message(data))
    except SIPParseError:
        request = read_for_reply(data)
        if request is not None:
            encode_message(make_response(request, 400, to_tag="t"))
    if zlib.crc32(data) % INSPECTED_EACH == 0:
        verdict = inspect(data, list(ElementRole)[len(data) % len(ElementRole)])
        if verdict.valid != (verdict.reason is None):
            raise Broken("the verdict does not hold together")
        dissect(data)


def handle_description(data: bytes) -> bool:
    """Read and write a session description."""
    try:
        description = SessionDescription.parse(data)
    except SIPParseError:
        return False
    if SessionDescription.parse(description.encode()) != description:
        raise Broken(NOT_THE_SAME)
    return True


def examine_nothing(data: bytes) -> None:
    """Do nothing: a description is complete once it was read."""


def handle_digest(data: bytes) -> bool:
    """Read and write a challenge and credentials."""
    text = data.decode(errors="replace")
    accepted = False
    for kind in (Challenge, Credentials):
        try:
            value = kind.parse(text)
        except SIPParseError:
            continue
        accepted = True
        if kind.parse(str(value)) != value:
            raise Broken(NOT_THE_SAME)
    return accepted


def examine_digest(data: bytes) -> None:
    """Compute the proof for the credentials: only an unknown algorithm may fail."""
    try:
        credentials = Credentials.parse(data.decode(errors="replace"))
    except SIPParseError:
        return
    if credentials.algorithm.upper() in SUPPORTED:
        response_digest("secret", credentials, "REGISTER")


TARGETS: Final = (
    Target("sip-message", make_message, handle_message, examine_message),
    Target("sip-sdp", make_description, handle_description, examine_nothing),
    Target("sip-digest", make_digest, handle_digest, examine_digest),
)


def _made(random: Random, suffix: str, grammatical: Callable[[Random], bytes]) -> bytes:
    return _drawn(random, corpus(suffix), grammatical)[:BYTES_MAX]


def _drawn(random: Random, seeds: Sequence[bytes], grammatical: Callable[[Random], bytes]) -> bytes:
    drawn = random.random()
    if drawn < 0.5:
        return mutated(random, random.choice(seeds), seeds)
    if drawn < 0.75:
        return grammatical(random)
    if drawn < 0.97:
        return mutated(random, grammatical(random), seeds)
    return random.randbytes(random.randint(0, NOISE_BYTES_MAX))


@functools.cache
def corpus(suffix: str) -> tuple[bytes, ...]:
    """Return the corpus files of one kind; ``FileNotFoundError`` where there are none."""
    files = tuple(path.read_bytes() for path in sorted(CORPUS.glob(f"*.{suffix}")))
    if not files:
        raise FileNotFoundError(f"no corpus in {CORPUS}")
    return files


def _use(message: Message) -> None:
    """Use a parsed message in every way: nothing may raise."""
    _ = message.via, message.vias, message.via.rport, message.via.received, message.via.names_transaction
    _ = message.from_.tag, message.to.uri.address_of_record, message.call_id, message.cseq, message.contact
    _ = message.contacts, message.routes, message.record_routes, message.max_forwards, message.expires
    _ = repr(message), message.without_first("Via").without_first("Contact")
    for name, _ in message.headers:
        message.headers_all(name)
