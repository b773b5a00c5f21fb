"""The ``ng`` protocol of rtpengine, by which a SIP proxy controls a media relay (DESIGN 6.7).

::

    proxy ──▶ 5323_7 d7:command5:offer7:call-id...3:sdp...e     a cookie, a space, and a bencoded dictionary
          ◀── 5323_7 d6:result2:ok3:sdp...e                     or JSON, if the command was in JSON

A proxy repeats an unanswered command under the same cookie. This module has the formats for both sides: the relay
reads commands and writes replies; the proxy writes commands and reads replies, of this relay and of rtpengine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from wanderbus.errors import RemoteProtocolError
from wanderbus.limits import REASON_CHARACTERS_MAX, UDP_PAYLOAD_BYTES_MAX
from wanderbus.relay import bencode

COOKIE_BYTES_MAX: Final = 128
"""Maximum length of a cookie; Kamailio's are below 30."""

NAME_CHARACTERS_MAX: Final = 1_024
"""Maximum length of a Call-ID, a tag or a branch, which are stored as long as the call."""

INVALID: Final = "Invalid NG data format"
"""Reply of rtpengine to a command that it cannot parse."""

LOAD_LIMIT: Final = "Parallel session limit reached"

Fields = dict[str, Any]


class Command(msgspec.Struct, frozen=True):
    """One command: its cookie, which is any bytes without a space, and its dictionary."""

    cookie: bytes
    fields: Fields
    json: bool = False
    """True if the command is in JSON; the reply then is, too."""

    def text(self, key: str) -> str:
        """Return the text of ``key``, "" if there is none."""
        value = self.fields.get(key)
        return value if isinstance(value, str) else ""

    def words(self, key: str) -> tuple[str, ...]:
        """Return the strings in the list of ``key``, with hyphens for spaces, as rtpengine compares them."""
        value = self.fields.get(key)
        listed = value if isinstance(value, list) else ()
        return tuple(word.replace(" ", "-") for word in listed if isinstance(word, str))

    @property
    def source_ip(self) -> str:
        """Return the source of the SIP message if the flags ask to use it as the address of its sender, else ""."""
        received = self.fields.get("received-from")
        if "SIP-source-address" not in self.words("flags") or not isinstance(received, list) or len(received) != 2:
            return ""
        return received[1] if isinstance(received[1], str) else ""

    @property
    def replaces_origin(self) -> bool:
        """Return whether the flags ask to replace the address in ``o=`` too."""
        return "origin" in self.words("replace") or "replace-origin" in self.words("flags")

    def fault(self) -> str | None:
        """Return the missing or too long key of an offer or answer, in rtpengine's wording and order, or None."""
        words = {"sdp": "SDP body", "call-id": "call-id", "from-tag": "from-tag"}
        if self.text("command") == "answer":
            words["to-tag"] = "to-tag"
        lacking = next((f"No {word} in message" for key, word in words.items() if not self.text(key)), None)
        names = ("call-id", "from-tag", "to-tag", "via-branch")
        too_long = next((f"The {key} is too long" for key in names if len(self.text(key)) > NAME_CHARACTERS_MAX), None)
        return lacking or too_long


class Unreadable(RemoteProtocolError):
    """A command with a readable cookie and unreadable content; the message is the reason for the error reply."""

    def __init__(self, cookie: bytes, json: bool = False) -> None:
        super().__init__(INVALID, status=None)
        self.cookie = cookie
        self.json = json


def read_command(datagram: bytes) -> Command:
    """Parse a datagram of a proxy.

    :raises Unreadable: a cookie is followed by something other than a dictionary
    :raises RemoteProtocolError: there is no cookie, so it cannot be answered
    """
    cookie, body = _parted(datagram)
    is_json = body.startswith(b"{")
    try:
        return Command(cookie, _dictionary(body), is_json)
    except RemoteProtocolError:
        raise Unreadable(cookie, is_json) from None


def write_reply(cookie: bytes, fields: Mapping[str, Any], *, json: bool = False) -> bytes:
    """Return the datagram of a reply."""
    if not json:
        return cookie + b" " + bencode.encode(dict(fields))
    return cookie + b" " + msgspec.json.encode(_speakable(fields))


def refused(reason: str) -> Fields:
    """Return the reply to a refused command."""
    return {"result": "error", "error-reason": reason}


def full(command: Command) -> Fields:
    """Return the reply to an offer for which there is no room; a proxy that supports it then asks another relay."""
    if "load-limit" in command.words("supports"):
        return {"result": "load limit", "message": LOAD_LIMIT}
    return refused(LOAD_LIMIT)


# The proxy's half ----------------------------------------------------------------------------------------------------


def write_command(cookie: bytes, fields: Mapping[str, Any]) -> bytes:
    """Return the datagram for a command that :func:`ping`, :func:`describe` or :func:`delete` built."""
    return cookie + b" " + bencode.encode(dict(fields))


def read_reply(datagram: bytes) -> tuple[bytes, Fields]:
    """Return the cookie of a reply and its dictionary; :class:`RemoteProtocolError` if it cannot be parsed."""
    cookie, body = _parted(datagram)
    return cookie, _dictionary(body)


def outcome(reply: Mapping[str, Any]) -> tuple[str, str]:
    """Return the description in a reply, or "", and the reason why the command failed, or ""."""
    result = reply.get("result")
    if result in ("ok", "pong"):
        sdp = reply.get("sdp")
        return (sdp if isinstance(sdp, str) else ""), ""
    given = (reply.get("error-reason"), reply.get("message"), result)
    reason = next((each for each in given if isinstance(each, str) and each), "the relay gave no result")
    return "", reason[:REASON_CHARACTERS_MAX]


def ping() -> Fields:
    """Build the command that checks whether a relay answers."""
    return {"command": "ping"}


def describe(
    command: Literal["offer", "answer"],
    sdp: str,
    *,
    call_id: str,
    from_tag: str,
    to_tag: str = "",
    via_branch: str = "",
    source_ip: str = "",
    flags: Sequence[str] = (),
) -> Fields:
    """Build an offer or an answer; ``from_tag`` is that of the party that offered, in both.

    ``source_ip`` is the source of the SIP message. The relay uses it in place of the addresses in ``sdp``, which are
    useless behind NAT. The flags make rtpengine follow a side that moves; this relay uses connection ids instead.
    """
    fields: Fields = {"command": command, "call-id": call_id, "from-tag": from_tag}
    fields |= {"to-tag": to_tag} if to_tag else {}
    fields |= {"via-branch": via_branch} if via_branch else {}
    if source_ip:
        fields["received-from"] = ["IP6" if ":" in source_ip else "IP4", source_ip]
    trust = "SIP-source-address" if source_ip else "trust-address"
    fields["flags"] = [trust, "media-handover", *flags]
    return fields | {"replace": ["origin"], "ICE": "remove", "supports": ["load limit"], "sdp": sdp}


def delete(*, call_id: str, from_tag: str = "", to_tag: str = "", via_branch: str = "") -> Fields:
    """Build the delete command of a call, or only of its dialogue with ``to_tag``, or of its branch ``via_branch``."""
    given = {"from-tag": from_tag, "to-tag": to_tag, "via-branch": via_branch}
    return {"command": "delete", "call-id": call_id, **{key: value for key, value in given.items() if value}}


# Both ----------------------------------------------------------------------------------------------------------------


def _parted(datagram: bytes) -> tuple[bytes, bytes]:
    cookie, space, body = datagram[:UDP_PAYLOAD_BYTES_MAX].partition(b" ")
    if not space or not 0 < len(cookie) <= COOKIE_BYTES_MAX:
        raise RemoteProtocolError("ng: a message must begin with a cookie and a space", status=None)
    return cookie, body


def _dictionary(body: bytes) -> Fields:
    value: object
    if body.startswith(b"{"):
        try:
            value = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise RemoteProtocolError("ng: invalid JSON dictionary", status=None) from None
    else:
        value = bencode.decode(body)
    if not isinstance(value, dict):
        raise RemoteProtocolError("ng: a message must be a dictionary", status=None)
    return value


def _speakable(value: Any) -> Any:
    """Return ``value`` with U+FFFD in place of bytes that are not UTF-8, which JSON cannot represent."""
    match value:
        case str():
            return value.encode(errors="surrogateescape").decode(errors="replace")
        case Mapping():
            return {_speakable(key): _speakable(each) for key, each in value.items()}
        case list() | tuple():
            return [_speakable(each) for each in value]
    return value
