"""Values of digest authentication: challenges, credentials and their hashes (RFC 7616 3.3, 3.4).

MD5, SHA-256 and SHA-512-256 (RFC 8760). A repr or an error message never contains a password, HA1 or digest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.sip.message.headers import TOKEN, quoted, split_list, unquoted

_HASHES: Final = {"md5": "md5", "sha-256": "sha256", "sha-512-256": "sha512_256"}
SUPPORTED: Final = ("SHA-512-256", "SHA-256", "MD5")
"""Supported algorithms."""

ALGORITHMS: Final = ("SHA-256", "MD5")
"""Default algorithms, in order of preference (RFC 8760 2.4)."""

_QUOTED_VALUE: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NONCE_COUNT: Final = re.compile(r"[0-9A-Fa-f]{8}")

VALUE_CHARACTERS_MAX: Final = 1_024
"""Largest length of one value of a challenge or of credentials."""


class Challenge(msgspec.Struct, frozen=True):
    """A WWW-Authenticate or Proxy-Authenticate value of the Digest scheme (RFC 7616 3.3).

    ``qop`` is empty for a server older than RFC 2617 (RFC 3261 22.4 step 8).
    """

    realm: str
    nonce: str
    algorithm: str = "MD5"
    qop: tuple[str, ...] = ("auth",)
    stale: bool = False
    opaque: str | None = None

    @classmethod
    def parse(cls, text: str) -> Challenge:
        """Read a challenge; SIPParseError, also for another scheme."""
        values = _parse_digest(text)
        return cls(
            realm=_needed(values, "realm"),
            nonce=_needed(values, "nonce"),
            algorithm=values.get("algorithm", "MD5"),
            qop=tuple(word for item in values.get("qop", "").split(",") if (word := _lowered(item.strip(" \t")))),
            stale=values.get("stale", "").lower() == "true",
            opaque=values.get("opaque"),
        )

    @property
    def shortest(self) -> str:
        """The challenge in the fewest characters: a missing algorithm means MD5 (RFC 7616 3.3)."""
        return "Digest " + ",".join(part for part in self._parts() if part != "algorithm=MD5")

    def __str__(self) -> str:
        return "Digest " + ", ".join(self._parts())

    def _parts(self) -> list[str]:
        parts = [f"realm={quoted(self.realm)}", f"nonce={quoted(self.nonce)}"]
        if self.opaque is not None:
            parts.append(f"opaque={quoted(self.opaque)}")
        if self.stale:
            parts.append("stale=true")
        parts.append(f"algorithm={_token_or_quoted(self.algorithm)}")
        if self.qop:
            parts.append(f"qop={quoted(','.join(self.qop))}")
        return parts


class Credentials(msgspec.Struct, frozen=True):
    """An Authorization or Proxy-Authorization value of the Digest scheme (RFC 7616 3.4).

    ``nonce_count``, ``cnonce`` and ``qop`` are None for a client older than RFC 2617.
    """

    username: str
    realm: str
    nonce: str
    uri: str
    response: str
    algorithm: str = "MD5"
    cnonce: str | None = None
    nonce_count: int | None = None
    qop: str | None = None
    opaque: str | None = None

    @classmethod
    def parse(cls, text: str) -> Credentials:
        """Read credentials; SIPParseError, also for another scheme."""
        values = _parse_digest(text)
        count = values.get("nc")
        if count is not None and not _NONCE_COUNT.fullmatch(count):
            raise SIPParseError("digest: nc must have eight hexadecimal digits")
        return cls(
            username=_needed(values, "username"),
            realm=_needed(values, "realm"),
            nonce=_needed(values, "nonce"),
            uri=_needed(values, "uri"),
            response=_lowered(_needed(values, "response")),
            algorithm=values.get("algorithm", "MD5"),
            cnonce=values.get("cnonce"),
            nonce_count=None if count is None else int(count, 16),
            qop=values.get("qop"),
            opaque=values.get("opaque"),
        )

    def __str__(self) -> str:
        parts = [
            f"{name}={quoted(value)}"
            for name, value in (
                ("username", self.username),
                ("realm", self.realm),
                ("nonce", self.nonce),
                ("uri", self.uri),
                ("response", self.response),
                ("cnonce", self.cnonce),
                ("opaque", self.opaque),
            )
            if value is not None
        ]
        parts.append(f"algorithm={_token_or_quoted(self.algorithm)}")
        if self.qop is not None:
            parts.append(f"qop={_token_or_quoted(self.qop)}")
        if self.nonce_count is not None:
            parts.append(f"nc={self.nonce_count:08x}")
        return "Digest " + ", ".join(parts)

    def __repr__(self) -> str:
        return f"Credentials(username={self.username!r}, realm={self.realm!r}, algorithm={self.algorithm!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("username", self.username), ("realm", self.realm), ("algorithm", self.algorithm)]


Secret: TypeAlias = str | Mapping[str, str]
"""Secret of a user: a password, or its HA1 in one realm under each of :data:`HASHED`."""

HASHED: Final = ("sha-256", "sha-512-256", "md5")
"""Algorithms whose HA1 can be stored in place of a password (RFC 8760)."""


def secret_ha1(secret: Secret, username: str, realm: str, algorithm: str) -> str | None:
    """Return HA1 of a secret under ``algorithm``, None if it is not stored."""
    return ha1(username, realm, secret, algorithm) if isinstance(secret, str) else secret.get(algorithm.lower())


def ha1(username: str, realm: str, password: str, algorithm: str = "SHA-256") -> str:
    """Return the secret H(username:realm:password) (RFC 7616 3.4.2); SIPParseError for an unknown algorithm."""
    return _digest(algorithm, f"{username}:{realm}:{password}")


def response_digest(secret: str, credentials: Credentials, method: str) -> str:
    """Return the ``response`` that proves knowledge of ``secret``, an HA1 (RFC 7616 3.4.1; without qop RFC 3261 22.4).

    The ``response`` in ``credentials`` is ignored. SIPParseError for an unknown algorithm.
    """
    request_part = _digest(credentials.algorithm, f"{method}:{credentials.uri}")
    if credentials.qop is None:
        return _digest(credentials.algorithm, f"{secret}:{credentials.nonce}:{request_part}")
    count = f"{credentials.nonce_count or 0:08x}"
    middle = f"{credentials.nonce}:{count}:{credentials.cnonce or ''}:{credentials.qop}"
    return _digest(credentials.algorithm, f"{secret}:{middle}:{request_part}")


def _digest(algorithm: str, text: str) -> str:
    name = _HASHES.get(algorithm.lower())
    if name is None:
        raise SIPParseError("digest: unknown algorithm")
    return hashlib.new(name, text.encode(), usedforsecurity=False).hexdigest()


def _parse_digest(text: str) -> dict[str, str]:
    scheme, _, rest = text.strip(" \t").partition(" ")
    if scheme.lower() != "digest":
        raise SIPParseError("digest: not the Digest scheme")
    values: dict[str, str] = {}
    for item in split_list(rest):
        name, equals, value = (part.strip(" \t") for part in item.partition("="))
        name = name.lower()
        if not equals or not TOKEN.fullmatch(name) or not (_QUOTED_VALUE.fullmatch(value) or TOKEN.fullmatch(value)):
            raise SIPParseError("digest: expected a name, = and a value")
        if name in values:
            raise SIPParseError("digest: a name is given twice")
        # The limit applies to the unescaped value: its escapes may differ when it is encoded again.
        values[name] = unquoted(value)
        if len(values[name]) > VALUE_CHARACTERS_MAX:
            raise SIPParseError(f"digest: a value of more than {VALUE_CHARACTERS_MAX} characters")
    return values


def _lowered(text: str) -> str:
    """Convert ASCII letters to lower case; other letters could grow longer (U+0130)."""
    return text.lower() if text.isascii() else text


def _token_or_quoted(value: str) -> str:
    return value if TOKEN.fullmatch(value) else quoted(value)


def _needed(values: dict[str, str], name: str) -> str:
    if name not in values:
        raise SIPParseError(f"digest: {name} is missing")
    return values[name]
