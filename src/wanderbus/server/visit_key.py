"""Key of the servers of a domain by which they recognise calls of their users to other domains (decision 0174)."""

from __future__ import annotations

from typing import Final

from wanderbus.datachannel.trust import hkdf
from wanderbus.server.event_domain_member import EventDomainMember

_LABEL: Final = b"wanderbus visit key 1"


def visit_key_of(member: EventDomainMember | None, own_secret: bytes) -> bytes:
    """Return the key of a server's domain, from the secret of the domain, or from ``own_secret`` if it is alone."""
    secret = own_secret if member is None else bytes.fromhex(member.domain.settings.hash_key)
    return hkdf(secret, _LABEL)
