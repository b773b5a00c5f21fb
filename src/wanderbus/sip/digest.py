"""The server's side of digest authentication, and the names of the whole of it (RFC 3261 22, RFC 7616, RFC 8760).

A nonce carries the time it was issued and a serial number under a keyed hash, so that issuing one costs no
memory. Memory is kept only for nonces that a known user has used rightly: the highest count seen, which has
to rise. The key should be fresh in each process, because what was seen is forgotten with it.
"""

from __future__ import annotations

import hashlib
import heapq
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.sip.digest_client import DigestClient
from wanderbus.sip.digest_values import HASHED, Challenge, Credentials, Secret, ha1, response_digest, secret_ha1
from wanderbus.sip.message import Request
from wanderbus.sip.uri import SIPUri

__all__ = [
    "ALGORITHMS",
    "HASHED",
    "Accepted",
    "Authenticator",
    "Challenge",
    "Challenged",
    "Credentials",
    "DigestClient",
    "Rejected",
    "Secret",
    "Verdict",
    "ha1",
    "response_digest",
]

ALGORITHMS: Final = ("SHA-256", "MD5")
"""What is offered unless told otherwise, in order of preference (RFC 8760 2.4)."""

NONCES_REMEMBERED_MAX: Final = 4_096
"""Nonces in use whose count is remembered; beyond that the oldest is declared stale."""

_NONCE_NUMBER_BYTES: Final = 5
_SEAL_BYTES: Final = 8
_NONCE_CHARACTERS: Final = 24
"""Short, because a challenge must not outgrow the request it answers; 64 bits of seal leave nothing to guess."""


class Accepted(msgspec.Struct, frozen=True):
    """The request is from ``username``."""

    username: str


class Challenged(msgspec.Struct, frozen=True):
    """Answer 401 (407) with ``challenges`` as WWW-Authenticate (Proxy-Authenticate) fields, in this order."""

    challenges: list[str]
    stale: bool


class Rejected(msgspec.Struct, frozen=True):
    """Answer with ``status`` and ``reason``."""

    status: int
    reason: str


Verdict = Accepted | Challenged | Rejected


class _Nonce(msgspec.Struct, frozen=True):
    issued_ms: int
    serial: int


class Authenticator:
    """Checks who sent a request.

    ``secrets`` gives a user's password, its digests, or None; ``key`` seals the nonces; ``algorithms`` is in order of
    preference; a nonce holds for ``nonce_lifetime_s`` seconds.
    """

    def __init__(
        self,
        realm: str,
        secrets: Callable[[str], Secret | None],
        key: bytes,
        *,
        algorithms: Sequence[str] = ALGORITHMS,
        nonce_lifetime_s: float = 300.0,
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

    def check(
        self,
        request: Request,
        now: float,
        *,
        header: str = "Authorization",
        known_as: Callable[[SIPUri], bool] = lambda uri: False,
    ) -> Verdict:
        """Judge a request at monotonic second ``now`` by the credentials in ``header``.

        None, unreadable or outdated ones give Challenged; with a nonce of ours an unknown user gives
        Rejected 404 and a wrong digest Rejected 403 (SPEC: agents tell the two apart). Credentials made for another
        resource than the Request-URI names give Rejected 400, unless that resource is ``known_as`` what they name.
        A digest that is right but for its nonce or count gives Challenged with stale (RFC 7616 3.3).
        """
        now_ms = int(now * 1000)
        credentials = self._credentials(request, header)
        if credentials is None:
            return self._challenged(now_ms, stale=False)
        secret = self._secrets(credentials.username)
        right = secret is not None and self._is_right(credentials, secret, request.method)
        nonce = self._opened(credentials.nonce)
        if nonce is None or self._is_outdated(nonce, now_ms):
            return self._challenged(now_ms, stale=right)
        if secret is None:
            return Rejected(404, "Unknown User")
        if not right:
            return Rejected(403, "Wrong Password")
        if not _is_for(credentials, request, known_as):
            return Rejected(400, "Credentials For Another URI")
        if not self._counted(nonce, credentials.nonce_count or 0, now_ms):
            return self._challenged(now_ms, stale=True)
        return Accepted(credentials.username)

    def knows(self, username: str) -> bool:
        """Say whether there is such a user."""
        return self._secrets(username) is not None

    def secret_of(self, username: str) -> str | None:
        """Return HA1 of a user under SHA-256 (RFC 7616 3.4.2), None for an unknown one; it is not to be shown."""
        secret = self._secrets(username)
        return None if secret is None else secret_ha1(secret, username, self._realm, "SHA-256")

    def __repr__(self) -> str:
        return f"Authenticator(realm={self._realm!r}, algorithms={self._algorithms!r})"

    def _challenged(self, now_ms: int, *, stale: bool) -> Challenged:
        self._serial += 1
        nonce = self._sealed(_Nonce(now_ms, self._serial))
        offered = [Challenge(self._realm, nonce, algorithm, ("auth",), stale) for algorithm in self._algorithms]
        return Challenged([str(challenge) for challenge in offered], stale)

    def _credentials(self, request: Request, header: str) -> Credentials | None:
        """The first credentials for our realm that are complete and use what we offer."""
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

    def _is_right(self, credentials: Credentials, secret: Secret, method: str) -> bool:
        known = secret_ha1(secret, credentials.username, self._realm, credentials.algorithm)
        if known is None:
            return False
        expected = response_digest(known, credentials, method)
        return hmac.compare_digest(expected.encode(), credentials.response.encode())

    def _sealed(self, nonce: _Nonce) -> str:
        content = b"".join(number.to_bytes(_NONCE_NUMBER_BYTES) for number in (nonce.issued_ms, nonce.serial))
        return urlsafe_b64encode(content + self._seal(content)).decode()

    def _opened(self, text: str) -> _Nonce | None:
        """Return what a nonce of ours says, None for any other."""
        if len(text) != _NONCE_CHARACTERS or not text.isascii():
            return None
        try:
            sealed = urlsafe_b64decode(text)
        except ValueError:
            return None
        content, seal = sealed[:-_SEAL_BYTES], sealed[-_SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._seal(content)):
            return None
        issued_ms, serial = content[:_NONCE_NUMBER_BYTES], content[_NONCE_NUMBER_BYTES:]
        return _Nonce(int.from_bytes(issued_ms), int.from_bytes(serial))

    def _seal(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content + self._realm.encode(), hashlib.sha256)[:_SEAL_BYTES]

    def _is_outdated(self, nonce: _Nonce, now_ms: int) -> bool:
        age_ms = now_ms - nonce.issued_ms
        return not 0 <= age_ms <= self._nonce_lifetime_ms or nonce.serial <= self._forgotten_serial

    def _counted(self, nonce: _Nonce, count: int, now_ms: int) -> bool:
        """Take note of a count; False if it does not rise, which is a repetition (RFC 7616 3.4)."""
        seen = self._counts.get(nonce.serial)
        if seen is not None and count <= seen:
            return False
        if seen is None:
            self._forget(now_ms)
            heapq.heappush(self._serials, (nonce.serial, nonce.issued_ms))
        self._counts[nonce.serial] = count
        return True

    def _forget(self, now_ms: int) -> None:
        """Drop nonces past their time, and the oldest ones while there are too many."""
        while self._serials:
            serial, issued_ms = self._serials[0]
            if now_ms - issued_ms <= self._nonce_lifetime_ms and len(self._serials) < NONCES_REMEMBERED_MAX:
                return
            heapq.heappop(self._serials)
            del self._counts[serial]
            self._forgotten_serial = max(self._forgotten_serial, serial)


def _is_for(credentials: Credentials, request: Request, known_as: Callable[[SIPUri], bool]) -> bool:
    """Tell whether credentials were made for ``request`` (RFC 7616 3.4.6, RFC 3261 22.4 item 5).

    Scheme, port and parameters are left out: proxies rewrite them on the way, and not every phone writes them twice.
    """
    try:
        named, asked = SIPUri.parse_any(credentials.uri), SIPUri.parse_any(request.uri)
    except SIPParseError:
        return False
    return named.address_of_record == asked.address_of_record or known_as(named)
