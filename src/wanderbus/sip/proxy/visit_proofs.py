"""Proofs that a user calls a service of another domain: made by the proxy of the user's own domain (decision 0174).

The proxy has authenticated the user. It signs what is called, and when, with a key of the servers of its domain::

    P-Wanderbus-Visit: 1764516000 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08

The other domain can only pass the proof on. By it, a server of the own domain knows that the user has called there.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

import msgspec

from wanderbus.sip.message.headers import VISIT
from wanderbus.sip.message.message import Request

MAC_BYTES: Final = 32

_LABEL: Final = "wanderbus visit 1"
_PROOF: Final = re.compile(r"([0-9]{1,12}) ([0-9a-f]{64})")
_SESSION: Final = re.compile(rb"^a=wanderbus-session:([A-Za-z0-9._-]{1,64})\r?$", re.MULTILINE)


class VisitProof(msgspec.Struct, frozen=True, array_like=True):
    """Proof that a call has passed the proxy of the caller's own domain at Unix second ``at_s``."""

    at_s: int
    mac: bytes


def visit_mac(key: bytes, user: str, domain: str, call_id: str, session: str, at_s: int) -> bytes:
    """Return the MAC for a call of ``user`` to ``domain``, who wants to join ``session`` there.

    The number of lines shows if a field has line breaks, which nothing has that a proxy has signed.
    """
    covered = (_LABEL, user, domain, call_id, session, str(at_s))
    return hmac.digest(key, "\n".join(covered).encode(), hashlib.sha256)


def is_proved(proof: VisitProof, key: bytes, user: str, domain: str, call_id: str, session: str) -> bool:
    """Return whether ``proof`` is one for this call, whatever its time is."""
    return hmac.compare_digest(proof.mac, visit_mac(key, user, domain, call_id, session, proof.at_s))


def with_visit(request: Request, key: bytes, user: str, domain: str, at_s: int) -> Request:
    """Return an INVITE of ``user`` to another ``domain`` with its proof; as it is if it names no session."""
    bare = request.without(VISIT)
    found = _SESSION.search(request.body)
    if request.method != "INVITE" or request.to.tag is not None or found is None:
        return bare
    mac = visit_mac(key, user, domain, request.call_id, found[1].decode(), at_s)
    return bare.with_header(VISIT, f"{at_s} {mac.hex()}")


def read_proof(text: str) -> VisitProof | None:
    """Return the proof that a header field has, None if it cannot be read."""
    found = _PROOF.fullmatch(text)
    return None if found is None else VisitProof(int(found[1]), bytes.fromhex(found[2]))
