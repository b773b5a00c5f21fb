"""URI of a user, as programs and commands give it."""

from __future__ import annotations

from wanderbus.errors import ConfigurationError, SIPParseError
from wanderbus.sip.message.uri import canonical_uri


def user_of(uri: str) -> str:
    """Return the canonical URI of a user; :class:`ConfigurationError` if it is not one."""
    if uri and not set("@:/ ") & set(uri):
        raise ConfigurationError(
            f"{uri!r} is not a user; write {uri}@localhost, or {uri}@ and the domain of your server"
        )
    try:
        return canonical_uri(uri)
    except SIPParseError as error:
        raise ConfigurationError(f"{uri!r} is not a user: {error}; write sip:name@domain") from None
