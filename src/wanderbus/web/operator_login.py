"""Login of operators over HTTP: Basic credentials of a user with a role (RFC 7617), limited as those of SIP."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable, Mapping

from wanderbus.sip.authentication.digest import ALGORITHMS, Secret, ha1
from wanderbus.sip.authentication.digest_values import secret_ha1
from wanderbus.sip.authentication.login_guard import LoginGuard
from wanderbus.sip.authentication.verdicts import RequestSource


class OperatorLogin:
    """Decides who may see what operators may see.

    :param domain: domain of the users, the realm of their secrets
    :param secrets: secrets of the users by name
    :param is_operator: tells whether a user, by name, has the role of an operator
    :param guard: limits of wrong passwords
    """

    def __init__(
        self,
        domain: str,
        secrets: Mapping[str, Secret],
        is_operator: Callable[[str], bool],
        guard: LoginGuard,
    ) -> None:
        self.domain = domain
        self._secrets = secrets
        self._is_operator = is_operator
        self._guard = guard

    def status(self, authorization: str, address: str, now: float) -> int:
        """Return the HTTP status for a header ``Authorization`` from ``address`` at monotonic second ``now``.

        200 admits; 401 asks for credentials, or rejects wrong ones; 403 needs a role; 429 has to wait.
        """
        name, password = _credentials(authorization)
        if not name:
            return 401
        source = RequestSource(address, address)
        if self._guard.wait_s(name, source, now) > 0:
            self._guard.refused(name, source, now)
            return 429
        if not self._is_right(name, password):
            self._guard.failed(name, source, now)
            return 401
        self._guard.accepted(name, source, now)
        return 200 if self._is_operator(name) else 403

    def _is_right(self, name: str, password: str) -> bool:
        secret = self._secrets.get(name)
        if secret is None:
            return False
        for algorithm in ALGORITHMS:
            if (known := secret_ha1(secret, name, self.domain, algorithm)) is not None:
                return hmac.compare_digest(known, ha1(name, self.domain, password, algorithm))
        return False


def _credentials(authorization: str) -> tuple[str, str]:
    """Return name and password of a header; both are empty without readable Basic credentials."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        name, _, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return name, password
