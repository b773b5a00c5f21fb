"""Digest authentication, server side (RFC 3261 22, RFC 7616, RFC 8760).

A nonce contains its time of issue, a serial number and a tag of the source that requested it, sealed with a keyed hash.
So issuing a nonce uses no memory. The registrar accepts a nonce only from that source: a sender that forges the source
address of a REGISTER has no valid nonce. Memory is used only for nonces that a known user has used correctly: the
highest count, which must rise. The key should be fresh in each process, because the counts are lost with the process.

Wrong digests are counted; above the limits further credentials are refused unread (:mod:`.login_guard`). Only a device
that has logged in knows a nonce that it has used correctly. So credentials with such a nonce are always read, but only
one wrong digest is allowed for it; the nonce that replaces it has the same privilege. So strangers who guess cannot
lock the device out. An unknown user gets the same response as a wrong password. A foreign or outdated nonce gets a
stale challenge, whatever the digest (RFC 7616 3.3).
"""

from __future__ import annotations

import hashlib
import heapq
import hmac
import math
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wanderbus.errors import SIPParseError
from wanderbus.refusals import FREE_FAILURES, LoginRefused
from wanderbus.sip.authentication.digest_client import DigestClient
from wanderbus.sip.authentication.digest_values import (
    ALGORITHMS,
    HASHED,
    Challenge,
    Credentials,
    Secret,
    ha1,
    response_digest,
    secret_ha1,
)
from wanderbus.sip.authentication.login_guard import NAME_CHARACTERS_MAX, LoginGuard, NewestByUser
from wanderbus.sip.authentication.verdicts import (
    SOURCE_FAILURES,
    Authenticated,
    AuthenticationRejected,
    Challenged,
    RequestSource,
    Verdict,
)
from wanderbus.sip.message.message import Request
from wanderbus.sip.message.uri import SIPUri

__all__ = [
    "ALGORITHMS",
    "HASHED",
    "Authenticated",
    "AuthenticationRejected",
    "Authenticator",
    "Challenge",
    "Challenged",
    "Credentials",
    "DigestClient",
    "Secret",
    "Verdict",
    "ha1",
    "response_digest",
]

NONCES_REMEMBERED_MAX: Final = 4_096
"""Nonces in use whose count is kept; above this number the oldest becomes stale."""

WRONG: Final = "Wrong User Or Password"
TOO_MANY: Final = "Too Many Failed Logins"

REFUSALS_KEPT_MAX: Final = 1_000
"""Refusals that are kept until they are reported."""

DEVICE_USERS_MAX: Final = 8_192
"""Users whose devices are identified by their nonces."""

_TO_ESCAPE: Final = re.compile(r"[^A-Za-z0-9\-_.!~*'()&=+$,;?/]")
"""Characters that the user part of a URI must not contain (RFC 3261 25.1)."""

_NONCE_NUMBER_BYTES: Final = 5
_SOURCE_TAG_BYTES: Final = 3
_SEAL_BYTES: Final = 5
_NONCE_CHARACTERS: Final = 24
"""Short, because a challenge must not be larger than the request; guessing a 40-bit seal takes 10^12 requests."""


class _Nonce:
    __slots__ = ("issued_ms", "serial", "source_tag")

    def __init__(self, issued_ms: int, serial: int, source_tag: bytes) -> None:
        self.issued_ms = issued_ms
        self.serial = serial
        self.source_tag = source_tag


class Authenticator:
    """Authenticates the senders of requests.

    ``secrets`` returns a user's password, its digests, or None; ``key`` seals the nonces; ``algorithms`` is in order of
    preference; a nonce is valid for ``nonce_lifetime_s`` seconds; ``guard`` limits wrong digests.
    """

    def __init__(
        self,
        realm: str,
        secrets: Callable[[str], Secret | None],
        key: bytes,
        *,
        algorithms: Sequence[str] = ALGORITHMS,
        nonce_lifetime_s: float = 300.0,
        guard: LoginGuard | None = None,
    ) -> None:
        self._realm = realm
        self._secrets = secrets
        self._key = key
        self._algorithms = tuple(algorithms)
        self._nonce_lifetime_ms = int(nonce_lifetime_s * 1000)
        self._serial = 0
        self._counts: dict[int, int] = {}
        self._serials: list[tuple[int, int]] = []
        self._forgotten_serial = 0
        self._guard = LoginGuard() if guard is None else guard
        self._devices: NewestByUser[int] = NewestByUser(DEVICE_USERS_MAX)
        """Serial numbers of the nonces that devices of each user continue with."""
        self._refusals: list[LoginRefused] = []

    def check(
        self,
        request: Request,
        now: float,
        *,
        header: str = "Authorization",
        known_as: Callable[[SIPUri], bool] = lambda uri: False,
        from_there: bool = False,
    ) -> Verdict:
        """Check a request at monotonic second ``now`` by the credentials in ``header``.

        With ``from_there`` a nonce is valid only from the source that requested it; from others it counts as outdated.

        Missing, unreadable or outdated credentials give Challenged. With a nonce of ours, a wrong digest or an unknown
        user gives Rejected 403, and above the limits any digest gives Rejected 500 with Retry-After. Credentials for
        another resource than the Request-URI give Rejected 400, unless that resource is ``known_as`` the one that they
        name. A correct digest with a repeated count gives Challenged with stale (RFC 7616 3.3).
        """
        now_ms = int(now * 1000)
        source = self._guard.source_of(request)
        credentials = self._credentials(request, header)
        if credentials is None:
            return self._challenged(source, now_ms, stale=False)
        nonce = self._opened(credentials.nonce)
        if nonce is None:
            return self._challenged(source, now_ms, stale=True)
        if self._is_outdated(nonce, now_ms) or (from_there and nonce.source_tag != self._source_tag(source)):
            return self._replaced(nonce, credentials, request.method, source, now)
        if refusal := self._refusal(nonce, credentials, request, source, now):
            return refusal
        if not _is_for(credentials, request, known_as):
            return AuthenticationRejected(400, "Credentials For Another URI")
        return self._admitted(nonce, credentials, source, now)

    def take_refusals(self) -> list[LoginRefused]:
        """Return the refusals since the last call."""
        refusals, self._refusals = self._refusals, []
        return refusals

    def knows(self, username: str) -> bool:
        """Return whether the user exists."""
        return self._secrets(username) is not None

    def secret_of(self, username: str) -> str | None:
        """Return HA1 of a user under SHA-256 (RFC 7616 3.4.2), None for an unknown one; never log it."""
        secret = self._secrets(username)
        return None if secret is None else secret_ha1(secret, username, self._realm, "SHA-256")

    def __repr__(self) -> str:
        return f"Authenticator(realm={self._realm!r}, algorithms={self._algorithms!r})"

    def _refusal(
        self, nonce: _Nonce, credentials: Credentials, request: Request, source: RequestSource, now: float
    ) -> AuthenticationRejected | None:
        """Refuse a wrong digest with a valid nonce of ours, and any digest while the limits are exceeded."""
        user = credentials.username
        copy = f"{request.via.branch} {request.cseq} {credentials.response}"
        if self._guard.is_repeated(user, source, copy, now):
            return AuthenticationRejected(403, WRONG)
        is_device = self._devices.noted_at(user, nonce.serial) is not None
        wait_s, limit = (0.0, "") if is_device else self._guard.wait(user, source, now)
        if wait_s > 0:
            self._report(user, TOO_MANY, source, self._guard.refused(user, source, now), limit)
            # 503 would make an upstream proxy hold back the requests of other users too (RFC 3261 21.5.4).
            return AuthenticationRejected(500, TOO_MANY, (("Retry-After", str(math.ceil(wait_s))),))
        if not self._is_right(credentials, request.method):
            self._devices.forget(user, nonce.serial)
            self._report(user, WRONG, source, self._guard.failed(user, source, now, copy))
            return AuthenticationRejected(403, WRONG)
        return None

    def _admitted(self, nonce: _Nonce, credentials: Credentials, source: RequestSource, now: float) -> Verdict:
        """Accept a correct digest, unless it is repeated."""
        user = credentials.username
        if not self._counted(nonce, credentials.nonce_count or 0, int(now * 1000)):
            return self._challenged(source, int(now * 1000), stale=True)
        if self._devices.noted_at(user, nonce.serial) is None:
            self._guard.accepted(user, source, now)
        self._devices.note(user, nonce.serial, now)
        return Authenticated(user)

    def _replaced(
        self, nonce: _Nonce, credentials: Credentials, method: str, source: RequestSource, now: float
    ) -> Challenged:
        """Challenge again; the new nonce of a device replaces the old one, which becomes invalid."""
        user = credentials.username
        challenged = self._challenged(source, int(now * 1000), stale=True)
        if self._devices.noted_at(user, nonce.serial) is not None and self._is_right(credentials, method):
            self._devices.forget(user, nonce.serial)
            self._devices.note(user, self._serial, now)
        return challenged

    def _report(self, user: str, reason: str, source: RequestSource, count: int, limit: str = FREE_FAILURES) -> None:
        """Report a refusal; the user name comes from a stranger and is escaped, so that it cannot forge log lines."""
        if len(self._refusals) < REFUSALS_KEPT_MAX:
            name = _TO_ESCAPE.sub(_escape, user[:NAME_CHARACTERS_MAX])
            by_source = source.address if limit == SOURCE_FAILURES else None
            refused = LoginRefused(f"sip:{name}@{self._realm}", reason, source.path, count, limit, by_source)
            self._refusals.append(refused)

    def _challenged(self, source: RequestSource, now_ms: int, *, stale: bool) -> Challenged:
        self._serial += 1
        nonce = self._sealed(_Nonce(now_ms, self._serial, self._source_tag(source)))
        offered = [Challenge(self._realm, nonce, algorithm, ("auth",), stale) for algorithm in self._algorithms]
        return Challenged([str(challenge) for challenge in offered], stale)

    def _credentials(self, request: Request, header: str) -> Credentials | None:
        """Return the first complete credentials for our realm with a supported algorithm."""
        offered = {algorithm.lower() for algorithm in self._algorithms}
        for value in request.headers_all(header):
            try:
                found = Credentials.parse(value)
            except SIPParseError:
                continue
            complete = found.qop == "auth" and found.nonce_count and found.cnonce
            if found.realm == self._realm and found.algorithm.lower() in offered and complete:
                return found
        return None

    def _is_right(self, credentials: Credentials, method: str) -> bool:
        """Return whether the digest is that of the user; the work is the same for every user, known or not."""
        user, algorithm = credentials.username, credentials.algorithm
        secret = self._secrets(user)
        of_text = ha1(user, self._realm, secret if isinstance(secret, str) else "", algorithm)
        known = secret_ha1(secret, user, self._realm, algorithm) if isinstance(secret, Mapping) else of_text
        expected = response_digest(known or of_text, credentials, method)
        same = hmac.compare_digest(expected.encode(), credentials.response.encode())
        return same and secret is not None and known is not None

    def _source_tag(self, source: RequestSource) -> bytes:
        """Return a tag of ``source``, as far as it can be trusted."""
        return hmac.digest(self._key, b"place " + source.address.encode(), hashlib.sha256)[:_SOURCE_TAG_BYTES]

    def _sealed(self, nonce: _Nonce) -> str:
        content = b"".join(number.to_bytes(_NONCE_NUMBER_BYTES) for number in (nonce.issued_ms, nonce.serial))
        content += nonce.source_tag
        return urlsafe_b64encode(content + self._seal(content)).decode()

    def _opened(self, text: str) -> _Nonce | None:
        """Return the content of a nonce of ours, None for any other."""
        if len(text) != _NONCE_CHARACTERS or not text.isascii():
            return None
        try:
            sealed = urlsafe_b64decode(text)
        except ValueError:
            return None
        content, seal = sealed[:-_SEAL_BYTES], sealed[-_SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._seal(content)):
            return None
        numbers, source_tag = content[:-_SOURCE_TAG_BYTES], content[-_SOURCE_TAG_BYTES:]
        issued_ms, serial = numbers[:_NONCE_NUMBER_BYTES], numbers[_NONCE_NUMBER_BYTES:]
        return _Nonce(int.from_bytes(issued_ms), int.from_bytes(serial), source_tag)

    def _seal(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content + self._realm.encode(), hashlib.sha256)[:_SEAL_BYTES]

    def _is_outdated(self, nonce: _Nonce, now_ms: int) -> bool:
        age_ms = now_ms - nonce.issued_ms
        return not 0 <= age_ms <= self._nonce_lifetime_ms or nonce.serial <= self._forgotten_serial

    def _counted(self, nonce: _Nonce, count: int, now_ms: int) -> bool:
        """Record a count; False if it does not rise, which means a repetition (RFC 7616 3.4)."""
        seen = self._counts.get(nonce.serial)
        if seen is not None and count <= seen:
            return False
        if seen is None:
            self._forget(now_ms)
            heapq.heappush(self._serials, (nonce.serial, nonce.issued_ms))
        self._counts[nonce.serial] = count
        return True

    def _forget(self, now_ms: int) -> None:
        """Remove expired nonces, and the oldest ones while there are too many."""
        while self._serials:
            serial, issued_ms = self._serials[0]
            if now_ms - issued_ms <= self._nonce_lifetime_ms and len(self._serials) < NONCES_REMEMBERED_MAX:
                return
            heapq.heappop(self._serials)
            del self._counts[serial]
            self._forgotten_serial = max(self._forgotten_serial, serial)


def _escape(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode(errors="replace"))


def _is_for(credentials: Credentials, request: Request, known_as: Callable[[SIPUri], bool]) -> bool:
    """Return whether credentials were made for ``request`` (RFC 7616 3.4.6, RFC 3261 22.4 item 5).

    Scheme, port and parameters are not compared: proxies rewrite them on the way, and some phones omit them once.
    """
    try:
        named, asked = SIPUri.parse_any(credentials.uri), SIPUri.parse_any(request.uri)
    except SIPParseError:
        return False
    return named.address_of_record == asked.address_of_record or known_as(named)
