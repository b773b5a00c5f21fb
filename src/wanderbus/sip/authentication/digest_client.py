"""Digest authentication, client side (RFC 3261 22.2, 22.3; RFC 7616 3.6).

The last challenge of each realm is kept, and later requests carry credentials for it with a rising count. So only the
first request needs an extra round trip.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.machine import RandomSource
from wanderbus.sip.authentication.digest_values import (
    SUPPORTED,
    Challenge,
    Credentials,
    Secret,
    response_digest,
    secret_ha1,
)
from wanderbus.sip.message.message import Request, Response

REALMS_MAX: Final = 8
"""Largest number of challenges kept; the oldest is removed first."""

REQUESTS_REMEMBERED_MAX: Final = 256
"""Requests whose nonce count is kept until their response."""

CNONCE_BYTES: Final = 12

CHALLENGE_STATUSES: Final = (401, 407)

CHALLENGES_MAX: Final = 4
"""Largest number of repetitions of one request because of challenges.

One is usual; more are needed if a nonce becomes stale meanwhile, or if reordering makes ``nc`` look repeated.
"""

_CREDENTIALS_FIELDS: Final = {"WWW-Authenticate": "Authorization", "Proxy-Authenticate": "Proxy-Authorization"}

_Realm = tuple[str, str]
"""The header field for the credentials, and the realm."""


class DigestClient:
    """Responds to challenges for one user, with the given ``algorithms`` only. ``random`` creates the client nonces.

    If ``secret`` has digests, those are of one realm: a challenge of another realm gets a wrong response.
    """

    def __init__(
        self, username: str, secret: Secret, random: RandomSource, algorithms: Collection[str] = SUPPORTED
    ) -> None:
        self._username = username
        self._secret = secret
        self._random = random
        usable = {algorithm.lower() for algorithm in algorithms}
        self._algorithms = frozenset(usable if isinstance(secret, str) else usable & secret.keys())
        self._challenges: dict[_Realm, Challenge] = {}
        self._counts: dict[_Realm, int] = {}
        self._sent: dict[tuple[str, str], dict[_Realm, tuple[str, int]]] = {}

    def authorize(self, request: Request) -> Request:
        """Return the request with fresh credentials for every known realm, replacing older ones; else unchanged.

        SIPParseError if the request has no Call-ID or CSeq.
        """
        if not self._challenges:
            return request
        for field in _CREDENTIALS_FIELDS.values():
            request = request.without(field)
        used: dict[_Realm, tuple[str, int]] = {}
        for realm, challenge in self._challenges.items():
            self._counts[realm] += 1
            used[realm] = challenge.nonce, self._counts[realm]
            request = request.with_header(realm[0], str(self._credentials(challenge, self._counts[realm], request)))
        self._remember((request.call_id, str(request.cseq)), used)
        return request

    def learn(self, response: Response) -> bool:
        """Store the challenges of a 401 or 407; return whether the request should be sent again.

        False if there is no supported challenge, or if credentials with a fresh nonce (or one that is challenged again)
        were refused without stale: then the password is wrong. The caller limits the number of retries.
        """
        try:
            key = (response.call_id, str(response.cseq))
        except SIPParseError:
            return False
        refused = self._sent.pop(key, {})
        worth_it = False
        for realm, challenge in _answerable(response, self._algorithms).items():
            nonce, count = refused.get(realm, ("", 0))
            worth_it = worth_it or challenge.stale or (count != 1 and challenge.nonce != nonce)
            known = self._challenges.pop(realm, None)
            self._challenges[realm] = challenge
            if known is None or known.nonce != challenge.nonce:
                self._counts[realm] = 0
        while len(self._challenges) > REALMS_MAX:
            oldest = next(iter(self._challenges))
            del self._challenges[oldest], self._counts[oldest]
        return worth_it

    def __repr__(self) -> str:
        return f"DigestClient({self._username!r}, {len(self._challenges)} realms)"

    def _credentials(self, challenge: Challenge, count: int, request: Request) -> Credentials:
        with_qop = bool(challenge.qop)
        unsigned = Credentials(
            username=self._username,
            realm=challenge.realm,
            nonce=challenge.nonce,
            uri=request.uri,
            response="",
            algorithm=challenge.algorithm,
            cnonce=self._random.token(CNONCE_BYTES).hex() if with_qop else None,
            nonce_count=count if with_qop else None,
            qop="auth" if with_qop else None,
            opaque=challenge.opaque,
        )
        known = secret_ha1(self._secret, self._username, challenge.realm, challenge.algorithm)
        assert known is not None, "only challenges of known algorithms are kept"
        return msgspec.structs.replace(unsigned, response=response_digest(known, unsigned, request.method))

    def _remember(self, key: tuple[str, str], used: dict[_Realm, tuple[str, int]]) -> None:
        self._sent.pop(key, None)
        self._sent[key] = used
        if len(self._sent) > REQUESTS_REMEMBERED_MAX:
            del self._sent[next(iter(self._sent))]


def _answerable(response: Response, algorithms: Collection[str]) -> dict[_Realm, Challenge]:
    """Return the first supported challenge of each realm: the server lists its preferred one first (RFC 8760 2.4)."""
    found: dict[_Realm, Challenge] = {}
    for asking, field in _CREDENTIALS_FIELDS.items():
        for value in response.headers_all(asking):
            try:
                challenge = Challenge.parse(value)
            except SIPParseError:
                continue
            if challenge.algorithm.lower() in algorithms and (not challenge.qop or "auth" in challenge.qop):
                found.setdefault((field, challenge.realm), challenge)
    return found


class Challenges:
    """Credentials for one authenticating server; without a password no challenge is answered.

    The registrar and the callee may issue different nonces in one realm, so registration and sessions each have their
    own instance: with a common one, each would make the other's cached nonce look stale.
    """

    def __init__(
        self, username: str, secret: Secret | None, random: RandomSource, algorithms: Collection[str] = SUPPORTED
    ) -> None:
        self._client: DigestClient | None = None
        if secret is not None:
            self._client = DigestClient(username, secret, random, algorithms)

    def answered_ahead(self, request: Request) -> Request:
        """Return ``request`` with credentials for the last challenge, if there was one."""
        return request if self._client is None else self._client.authorize(request)

    def worth_retrying(self, response: Response, challenged: int) -> bool:
        """Store the challenge of a 401 or 407.

        Return whether another attempt can succeed after ``challenged`` attempts.
        """
        if self._client is None or challenged >= CHALLENGES_MAX:
            return False
        try:
            return self._client.learn(response)
        except SIPParseError:
            return False
