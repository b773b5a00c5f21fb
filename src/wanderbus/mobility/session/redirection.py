"""Targets of redirections by 3xx (RFC 3261 8.1.3.4, 21.3; SPEC X11)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.hosts import is_ip_address, is_single_host
from wanderbus.sip.message.headers import CONTACT_STAR, NameAddr
from wanderbus.sip.message.message import Response
from wanderbus.sip.message.targets import Target, target_of
from wanderbus.sip.message.uri import SIPUri

_FOLLOWED: Final = (300, 301, 302)
"""The followed statuses: Use Proxy (305) and Alternative Service (380) give no other address of the same user."""


def redirected_to(response: Response, asked: str, transports: Collection[str]) -> SIPUri | None:
    """Return the best Contact of a 3xx to our request for the URI ``asked``; None if there is none to follow.

    A contact that needs another transport than ``transports`` is left out, and so is a sips URI: without TLS on the
    whole path it would lose its security. Header fields and the method in a URI are ignored, because only the target is
    needed (RFC 3261 19.1.5).
    """
    if response.status not in _FOLLOWED:
        return None
    contacts = [contact for contact in response.contacts if contact != CONTACT_STAR and contact.uri.scheme == "sip"]
    for contact in sorted(contacts, key=_rank):
        params = tuple(param for param in contact.uri.params if param[0].lower() != "method")
        target = msgspec.structs.replace(contact.uri, headers=(), params=params)
        if str(target) != asked and is_single_host(target.host.strip("[]")) and _reached_over(target) in transports:
            return target
    return None


def _reached_over(target: SIPUri) -> str | None:
    try:
        return target_of(target).transport
    except SIPParseError:
        return None


def direct_hop(target: SIPUri, proxy: Target) -> Target:
    """Return the next hop of a request for ``target``: ``target`` itself if it is an address, else ``proxy``."""
    return target_of(target) if is_ip_address(target.host) else proxy


def _rank(contact: NameAddr) -> float:
    """Return the sort key: highest q first, a missing q is the highest (RFC 3261 20.10 is silent, RFC 2616 has 1)."""
    try:
        return -float(contact.param("q") or 1.0)
    except (ValueError, SIPParseError):
        return 0.0
