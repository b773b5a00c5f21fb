"""Tables of a domain's file that have to be the same at all its servers, each as a digest (SPEC J-01, K-01).

They determine where an event goes and who has to know an interest. Where two servers differ, an event that one of them
accepts may reach nobody, so they have no link. What is not here may differ for a while: addresses and SIP addresses,
public keys (a wrong one has no link anyway), multicast (links repair what it does not deliver), servers that lead no
channel, and the merging and advertisements of ordered channels, which concern each server alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

from wanderbus.settings.event_domain import EventDomain
from wanderbus.subscription import EVERY_SUBJECT

DIGEST_BYTES: Final = 8
LAYOUT_BYTES: Final = 16


def shared_tables(domain: EventDomain) -> Mapping[str, bytes]:
    """Return a digest of each table, by its name in the file.

    The digests are keyed with ``hash_key``, so they reveal nothing of the file, and all of them differ if that differs.
    """
    key = bytes.fromhex(domain.settings.hash_key)

    def digest(name: str, content: Any) -> bytes:
        data = f"{name} {json.dumps(content, sort_keys=True)}".encode()
        return blake2b(data, key=key, digest_size=DIGEST_BYTES).digest()

    return {name: digest(name, content) for name, content in _contents(domain).items()}


def layout_of(tables: Mapping[str, bytes]) -> bytes:
    """Return what identifies all tables together."""
    return blake2b(b"".join(tables[name] for name in sorted(tables)), digest_size=LAYOUT_BYTES).digest()


def _contents(domain: EventDomain) -> Mapping[str, Any]:
    settings = domain.settings
    # The entry of every subject also stands for all that the file does not name.
    named = [EVERY_SUBJECT, *settings.channels] if "decentralised" in domain.models else []
    decentralised = [each for each in named if each == EVERY_SUBJECT or domain.is_decentralised(each)]
    channels = {each: domain.channel(each) for each in decentralised}
    return {
        "hash_key": "",
        "groups": settings.groups,
        "pins": dict(settings.pins),
        "parents": dict(settings.parents),
        "servers": _servers(domain, has_decentralised=bool(decentralised)),
        "model": [
            settings.model,
            {name: own.model for name, own in settings.channels.items() if own.model not in (None, settings.model)},
        ],
        "merging": {name: [each.merging, each.precision_min] for name, each in channels.items()},
        "advertisements": [
            settings.advertisements if decentralised else "",
            {name: each.advertisements for name, each in channels.items()},
        ],
    }


def _servers(domain: EventDomain, *, has_decentralised: bool) -> list[Any]:
    """Return the first servers of the domain: those that joined later change neither leaders nor numbers.

    A server of decentralised channels has a number by its place among all servers, and another one spreads the interest
    in its groups when it leaves.
    """
    founders = domain.settings.founders
    servers = [founders("resolution"), founders() if has_decentralised else []]
    has_left = has_decentralised and domain.interest_leaders != founders("resolution")
    return [*servers, domain.interest_leaders] if has_left else servers
