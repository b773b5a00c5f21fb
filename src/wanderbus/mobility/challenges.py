"""Responses to digest challenges on behalf of the user (RFC 3261 22, RFC 7616; DESIGN 6.4)."""

from __future__ import annotations

from typing import Final

from wanderbus.errors import SIPParseError
from wanderbus.machine import RandomSource
from wanderbus.mobility.properties import Properties
from wanderbus.sip.authentication.digest_client import DigestClient
from wanderbus.sip.message.message import Request, Response

CHALLENGE_STATUSES: Final = (401, 407)

CHALLENGES_MAX: Final = 4
"""Largest number of repetitions of one request because of challenges.

One is usual; more are needed if a nonce becomes stale meanwhile, or if reordering makes ``nc`` look repeated.
"""


class Challenges:
    """Credentials for one authenticating server; without a password no challenge is answered.

    The registrar and the callee may issue different nonces in one realm, so registration and sessions each have their
    own instance: with a common one, each would make the other's cached nonce look stale.
    """

    def __init__(self, properties: Properties, random: RandomSource) -> None:
        password = properties.password
        self._client: DigestClient | None = None
        if password is not None:
            self._client = DigestClient(properties.username, password, random, properties.digest_algorithms)

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
