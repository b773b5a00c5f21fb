"""The ``ng`` protocol of rtpengine: how a SIP proxy tells a media relay what to do (DESIGN 6.7).

::

    proxy ──▶ 5323_7 d7:command5:offer7:call-id...3:sdp...e      a cookie, a space, and a dictionary in bencoding
          ◀── 5323_7 d6:result2:ok3:sdp...e                      or, if the command was so, in JSON

The proxy repeats a command of which it hears nothing, under the same cookie. Here is what both sides need: the relay
reads commands and writes replies; the proxy builds commands and reads replies, ours and rtpengine's alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from wanderbus.errors import RemoteProtocolError
from wanderbus.limits import REASON_CHARACTERS_MAX, UDP_PAYLOAD_BYTES_MAX
from wanderbus.relay import bencode

COOKIE_BYTES_MAX: Final = 128
"""A cookie; Kamailio's are below 30."""

NAME_CHARACTERS_MAX: Final = 1_024
"""A Call-ID, a tag or a branch, which are kept as long as the call."""

INVALID: Final = "Invalid NG data format"
"""What rtpengine calls a command that it cannot read."""

LOAD_LIMIT: Final = "Parallel session limit reached"

Fields = dict[str, Any]


class Command(msgspec.Struct, frozen=True):
    """One command: its cookie, which may be any bytes without a space, and its dictionary."""

    cookie: bytes
    fields: Fields
    json: bool = False
    """Whether it came in JSON, and is to be answered so."""

    def text(self, key: str) -> str:
        """Return the text of ``key``, "" if there is none."""
        value = self.fields.get(key)
        return value if isinstance(value, str) else ""

    def words(self, key: str) -> tuple[str, ...]:
        """Return the texts in the list of ``key`` as rtpengine compares them: hyphens for spaces."""
        value = self.fields.get(key)
        listed = value if isinstance(value, list) else ()
        return tuple(word.replace(" ", "-") for word in listed if isinstance(word, str))

    @property
    def source_ip(self) -> str:
        """Return where the SIP message came from if that is to be taken for the address of its sender, else ""."""
        received = self.fields.get("received-from")
        if "SIP-source-address" not in self.words("flags") or not isinstance(received, list) or len(received) != 2:
            return ""
        return received[1] if isinstance(received[1], str) else ""

    @property
    def replaces_origin(self) -> bool:
        """Return whether the relay's address is wanted in ``o=`` too."""
        return "origin" in self.words("replace") or "replace-origin" in self.words("flags")

    def fault(self) -> str | None:
        """Return what an offer or answer lacks, in rtpengine's words and order, or has too much of; None if nothing."""
        words = {"sdp": "SDP body", "call-id": "call-id", "from-tag": "from-tag"}
        if self.text("command") == "answer":
            words["to-tag"] = "to-tag"
        lacking = next((f"No {word} in message" for key, word in words.items() if not self.text(key)), None)
        names = ("call-id", "from-tag", "to-tag", "via-branch")
        too_long = next((f"The {key} is too long" for key in names if len(self.text(key)) > NAME_CHARACTERS_MAX), None)
        return lacking or too_long


class Unreadable(RemoteProtocolError):
    """A command that can be answered, but not read: its cookie is there. The message is the reason to answer with."""

    def __init__(self, cookie: bytes, json: bool = False) -> None:
        super().__init__(INVALID, status=None)
        self.cookie = cookie
        self.json = json


def read_command(datagram: bytes) -> Command:
    """Read what a proxy sent.

    :raises Unreadable: a cookie, and after it something that is no dictionary
    :raises RemoteProtocolError: there is not even a cookie; it cannot be answered
    """
    cookie, body = _parted(datagram)
    is_json = body.startswith(b"{")
    try:
        return Command(cookie, _dictionary(body), is_json)
    except RemoteProtocolError:
        raise Unreadable(cookie, is_json) from None


def write_reply(cookie: bytes, fields: Mapping[str, Any], *, json: bool = False) -> bytes:
    """Return the datagram that answers a command."""
    if not json:
        return cookie + b" " + bencode.encode(dict(fields))
    return cookie + b" " + msgspec.json.encode(_speakable(fields))


def refused(reason: str) -> Fields:
    """Return the reply to a command that is not done."""
    return {"result": "error", "error-reason": reason}


def full(command: Command) -> Fields:
    """Return the reply to an offer for which there is no room, which lets a proxy ask another relay if it knows how."""
    if "load-limit" in command.words("supports"):
        return {"result": "load limit", "message": LOAD_LIMIT}
    return refused(LOAD_LIMIT)


# The proxy's half ----------------------------------------------------------------------------------------------------


def write_command(cookie: bytes, fields: Mapping[str, Any]) -> bytes:
    """Return the datagram for a command that :func:`ping`, :func:`describe` or :func:`delete` built."""
    return cookie + b" " + bencode.encode(dict(fields))


def read_reply(datagram: bytes) -> tuple[bytes, Fields]:
    """Return the cookie of a reply, and what it says; :class:`RemoteProtocolError` if it cannot be read."""
    cookie, body = _parted(datagram)
    return cookie, _dictionary(body)


def outcome(reply: Mapping[str, Any]) -> tuple[str, str]:
    """Return the description in a reply, "" if it has none, and why the command was not done, "" if it was."""
    result = reply.get("result")
    if result in ("ok", "pong"):
        sdp = reply.get("sdp")
        return (sdp if isinstance(sdp, str) else ""), ""
    given = (reply.get("error-reason"), reply.get("message"), result)
    reason = next((each for each in given if isinstance(each, str) and each), "the relay gave no result")
    return "", reason[:REASON_CHARACTERS_MAX]


def ping() -> Fields:
    """Build the question whether a relay is there."""
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
    """Build an offer or an answer; ``from_tag`` is of who offered, in both.

    With ``source_ip`` the relay takes that, where the SIP message came from, for the address of the side that ``sdp``
    describes: behind NAT what it says of itself is of no use. The flags are those under which rtpengine follows a
    side that moves; ours asks for connection ids instead.
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
    """Build the end of a call, or of what was agreed on with ``to_tag``, or offered on ``via_branch``, alone."""
    given = {"from-tag": from_tag, "to-tag": to_tag, "via-branch": via_branch}
    return {"command": "delete", "call-id": call_id, **{key: value for key, value in given.items() if value}}


# Both ----------------------------------------------------------------------------------------------------------------


def _parted(datagram: bytes) -> tuple[bytes, bytes]:
    cookie, space, body = datagram[:UDP_PAYLOAD_BYTES_MAX].partition(b" ")
    if not space or not 0 < len(cookie) <= COOKIE_BYTES_MAX:
        raise RemoteProtocolError("ng: a message begins with a cookie and a space", status=None)
    return cookie, body


def _dictionary(body: bytes) -> Fields:
    value: object
    if body.startswith(b"{"):
        try:
            value = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise RemoteProtocolError("ng: no dictionary in JSON", status=None) from None
    else:
        value = bencode.decode(body)
    if not isinstance(value, dict):
        raise RemoteProtocolError("ng: a message is a dictionary", status=None)
    return value


def _speakable(value: Any) -> Any:
    """Return ``value`` with U+FFFD for bytes that were no UTF-8: JSON has no other word for them."""
    match value:
        case str():
            return value.encode(errors="surrogateescape").decode(errors="replace")
        case Mapping():
            return {_speakable(key): _speakable(each) for key, each in value.items()}
        case list() | tuple():
            return [_speakable(each) for each in value]
    return value
