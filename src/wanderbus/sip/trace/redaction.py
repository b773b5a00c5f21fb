"""Redaction of passwords and keys in a message that is stored or shown (SPEC U-06; RFC 7616, 4566, 4567, 4568).

It works on bytes as received, also of unreadable messages, and leaves everything else unchanged. It hides all parts of
a challenge or of credentials except those known to be harmless, the values of header fields whose names say that they
carry a secret, such as Cookie and X-Api-Key, passwords in URIs, header fields with credentials
inside a URI, and the values of SDP attributes that carry keys. In header fields a secret becomes ``***``; in the body
as many asterisks as it has characters, so that Content-Length remains correct. A compressed body cannot be searched and
is hidden as a whole. All patterns are possessive: the run time is linear.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from wanderbus.errors import SIPParseError
from wanderbus.sip.message.headers import TOKEN, split_list

HIDDEN: Final = "***"

_SHOWN_VALUES: Final = frozenset(("algorithm", "domain", "nc", "qop", "realm", "stale", "uri", "userhash", "username"))
_SHOWN_NAMES: Final = _SHOWN_VALUES | {"auts", "cnonce", "nextnonce", "nonce", "opaque", "response", "rspauth"}
_SCHEMES: Final = frozenset(("basic", "bearer", "digest", "kerberos", "negotiate", "ntlm"))

_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_LINE_START: Final = r"(?<![^\r\n])"
_VALUE: Final = r"((?:[^\r\n]|(?:\r\n|\r|\n)(?=[ \t]))*)"
_FIELD: Final = re.compile(
    rf"{_LINE_START}((?:www|proxy)-authenticate|(?:proxy-)?authorization|(?:proxy-)?authentication-info)(\s*+:[ \t]*+)"
    rf"{_VALUE}",
    re.IGNORECASE,
)
_SECRET_FIELD: Final = re.compile(
    rf"{_LINE_START}([^\s:]*?(?:cookie|api-?key|token|secret|passw|credential|private-?key)[^\s:]*+[ \t]*+:[ \t]*+)"
    rf"{_VALUE}",
    re.IGNORECASE,
)
_ATTRIBUTE: Final = re.compile(
    rf"({_LINE_START}[ \t]*+(?:k=|a=[^:\s]*?(?:key|crypto|pwd|password|secret)[^:\s]*+)[: \t]?)([^\r\n]++)",
    re.IGNORECASE,
)
_URI_FIELD: Final = re.compile(r"([?&](?:proxy-)?authorization=)([^&\s<>\"]++)", re.IGNORECASE)
_PLACE_OF_URI: Final = re.compile(r"<[^<>\r\n]*+>|[^\s<>\"]++")
_SCHEME: Final = re.compile(r"sips?:|(?<![a-z0-9+.\-])[a-z0-9+.\-]++://", re.IGNORECASE)
_CODING: Final = re.compile(rf"{_LINE_START}(?:content-encoding|e)[ \t]*+:{_VALUE}", re.IGNORECASE)
_DIGEST_VALUE: Final = re.compile(rf'{TOKEN.pattern}|"(?:[^"\\]|\\.)*"', re.DOTALL)

Mask = Callable[[str], str]


def redact(data: bytes) -> bytes:
    """Return one message without its secrets; one without secrets is returned unchanged. Never raises."""
    lead = len(data) - len(data.lstrip(b"\r\n"))
    found = _HEAD_END.search(data, lead)
    end = found.end() if found else len(data)
    # Latin-1 maps each byte to one character and back, so bytes that are no text are kept.
    head, body = data[:end].decode("latin-1"), data[end:].decode("latin-1")
    coding = _CODING.search(head)
    head = _SECRET_FIELD.sub(lambda found: found[1] + HIDDEN, _FIELD.sub(_shown_field, head))
    shown_head = _without_secrets(head, lambda secret: HIDDEN)
    if coding is not None and coding[1].strip().lower() not in ("", "identity"):
        shown_body = _asterisks(body)
    else:
        body = _FIELD.sub(lambda found: found[1] + found[2] + _asterisks(found[3]), body)
        body = _SECRET_FIELD.sub(lambda found: found[1] + _asterisks(found[2]), body)
        shown_body = _without_secrets(body, _asterisks)
    return (shown_head + shown_body).encode("latin-1")


def _without_secrets(text: str, mask: Mask) -> str:
    text = _ATTRIBUTE.sub(lambda found: found[1] + mask(found[2]), text)
    text = _URI_FIELD.sub(lambda found: found[1] + mask(found[2]), text)
    if "@" in text:
        text = _PLACE_OF_URI.sub(lambda found: _without_password(found[0], mask), text)
    return text


def _asterisks(secret: str) -> str:
    return re.sub(r"[^\r\n]", "*", secret)


def _shown_field(found: re.Match[str]) -> str:
    """Return a field with credentials or a challenge, unfolded, each value hidden unless it is known to be harmless."""
    name, colon, value = found[1], found[2], found[3]
    text = re.sub(r"[\r\n]++[ \t]*+", " ", value).strip()
    try:
        return f"{name}{colon}{_shown_credentials(text, has_scheme=not name.lower().endswith('-info'))}"
    except SIPParseError:
        return f"{name}{colon}{HIDDEN}"


def _shown_credentials(text: str, *, has_scheme: bool) -> str:
    scheme = ""
    if has_scheme:
        scheme, _, text = text.partition(" ")
        if scheme.lower() not in _SCHEMES:
            return HIDDEN
        if scheme.lower() != "digest":
            return f"{scheme} {HIDDEN}"
        scheme += " "
    return scheme + ", ".join(_shown_item(item) for item in split_list(text))


def _shown_item(item: str) -> str:
    name, equals, value = (part.strip(" \t") for part in item.partition("="))
    if not equals or name.lower() not in _SHOWN_NAMES:
        return HIDDEN
    harmless = name.lower() in _SHOWN_VALUES and _DIGEST_VALUE.fullmatch(value)
    return f"{name}={value if harmless else HIDDEN}"


def _without_password(text: str, mask: Mask) -> str:
    """Return a part of a line with the password of its first URI hidden: from its first : to the last @."""
    found = _SCHEME.search(text)
    if found is None:
        return text
    colon = text.find(":", found.end())
    at = text.rfind("@")
    if colon < 0 or at < colon or "@" in text[found.end() : colon]:
        return text
    return text[: colon + 1] + mask(text[colon + 1 : at]) + text[at:]
