"""Asserted identity of the sender of a request between domains (RFC 3325, RFC 3261 22.3).

A request to another domain is forwarded only if its sender is a user of ours who has authenticated by digest. For a
trusted domain the proxy then asserts the user in P-Asserted-Identity. Identities asserted by others are removed, unless
a trusted domain asserts one of its own users.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from wanderbus.errors import SIPParseError
from wanderbus.hosts import domain_of
from wanderbus.sip.authentication.digest import Authenticator, Credentials
from wanderbus.sip.authentication.verdicts import Authenticated, Challenged
from wanderbus.sip.message.headers import NameAddr
from wanderbus.sip.message.message import Request
from wanderbus.sip.proxy.bindings import Domain
from wanderbus.sip.proxy.decisions import Unproved

ASSERTED: Final = "P-Asserted-Identity"
PREFERRED: Final = "P-Preferred-Identity"

_CREDENTIALS_FIELD: Final = "Proxy-Authorization"


def vouched(request: Request, trusted: Container[str]) -> Request:
    """Return ``request`` without an asserted identity, unless one of the domains ``trusted`` asserts its own user.

    ``trusted`` are the trusted domains among those in the connection's certificate; empty for anybody else.
    """
    identity = asserted(request)
    bare = request.without(ASSERTED).without(PREFERRED)
    if identity is None or domain_of(identity) not in trusted:
        return bare
    return bare.with_header(ASSERTED, f"<{identity}>")


def asserted(request: Request) -> str | None:
    """Return the asserted user of ``request`` as an address of record; None unless it is exactly one SIP user."""
    try:
        values = request.headers_all(ASSERTED)
        uris = [NameAddr.parse(value).uri for value in values]
        if len(uris) != 1 or not uris[0].is_sip or uris[0].user is None:
            return None
        return uris[0].address_of_record
    except SIPParseError:
        return None


def without_private(request: Request) -> Request:
    """Return ``request`` as it leaves the trusted domains: without the identity if the sender asks for privacy (RFC
    3325 7).
    """
    try:
        wishes = {wish.strip().lower() for value in request.headers_all("Privacy") for wish in value.split(";")}
    except SIPParseError:
        wishes = {"id"}
    return request.without(ASSERTED) if "id" in wishes else request


class SenderAuthentication:
    """Authentication of the users of one ``domain`` by their home proxy; ``authenticator`` knows the users."""

    def __init__(self, domain: Domain, authenticator: Authenticator | None) -> None:
        self._domain = domain
        self._authenticator = authenticator

    def proved(self, request: Request, now: float) -> str | Unproved:
        """Return the sender of ``request`` as an address of record, or the refusal.

        Raises:
            SIPParseError: From cannot be read.
        """
        if self._authenticator is None or request.from_.uri.host != self._domain.name:
            return Unproved(403, "Not For Other Domains")
        verdict = self._authenticator.check(request, now, header=_CREDENTIALS_FIELD)
        if isinstance(verdict, Challenged):
            return Unproved(407, challenges=tuple(verdict.challenges))
        if not isinstance(verdict, Authenticated):
            return Unproved(verdict.status, verdict.reason, headers=verdict.headers)
        user = self._domain.address_of_record(verdict.username)
        return user if request.from_.uri.address_of_record == user else Unproved(403, "Not Your Address")

    def leaving(self, request: Request, user: str, *, trusted: bool) -> Request:
        """Return the request of ``user`` for another domain: without our credentials, with the identity if it is
        trusted.
        """
        bare = request.without(ASSERTED).without(PREFERRED)
        for name in (_CREDENTIALS_FIELD, "Authorization"):
            values = bare.headers_all(name)
            bare = bare.without(name)
            for value in values:
                if not self._is_ours(value):
                    bare = bare.with_header(name, value)
        return bare.with_header(ASSERTED, f"<{user}>") if trusted else bare

    def _is_ours(self, value: str) -> bool:
        try:
            return Credentials.parse(value).realm.lower() == self._domain.name
        except SIPParseError:
            return True
