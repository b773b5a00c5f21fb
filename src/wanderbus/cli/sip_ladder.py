"""``wanderbus sip ladder``: ladder diagram of a SIP trace, or its export for other tools (SPEC U-06)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from wanderbus.cli.output import (
    output_closed,
    print_error,
    print_json,
    print_line,
    print_lines,
    print_progress,
    print_progress_json,
    run_async,
)
from wanderbus.errors import ConfigurationError, SIPParseError, Unreachable
from wanderbus.runtime.files.trace_file import GrowingTrace, read_trace
from wanderbus.runtime.net.hep_sender import send_hep
from wanderbus.runtime.net.resolver import resolve
from wanderbus.sip.message.dissection import dissect
from wanderbus.sip.message.uri import canonical_uri
from wanderbus.sip.trace.following import Following
from wanderbus.sip.trace.hep import HEP_PORT, hep3
from wanderbus.sip.trace.ladder import difference, ladder, message_lines, place, seconds
from wanderbus.sip.trace.ladder_svg import ladder_svg
from wanderbus.sip.trace.pcap import pcap
from wanderbus.sip.trace.trace_messages import TracedMessage, select, traced_messages

FOLLOW_S: Final = 0.1
"""Pause between two looks at a trace that grows."""


def show_ladder(
    files: Annotated[
        list[Path], typer.Argument(help="Traces from 'wanderbus up --sip-trace FILE'; several are merged.")
    ],
    *,
    call: Annotated[str | None, typer.Option(help="Only this call: its Call-ID, or the beginning of it.")] = None,
    user: Annotated[str | None, typer.Option(help="Only messages from or to this URI.")] = None,
    since: Annotated[float | None, typer.Option(help="Only from this second of the trace on.")] = None,
    until: Annotated[float | None, typer.Option(help="Only up to this second of the trace.")] = None,
    payloads: Annotated[bool, typer.Option("--payloads", help="Show each message below its arrow.")] = False,
    diff: Annotated[
        tuple[int, int] | None, typer.Option(help="Show the differences between two messages, given by number.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the diagram as SVG to this file instead.")] = None,
    pcap: Annotated[Path | None, typer.Option(help="Write a capture to this file, for Wireshark or sngrep.")] = None,
    hep: Annotated[str | None, typer.Option(help="Send HEP3 over UDP to this collector, host or host:port.")] = None,
    hep_key: Annotated[
        str | None, typer.Option(help="Key for the collector, if it requires one.", envvar="WANDERBUS_HEP_KEY")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="Print each message as it passes, from now on, on a line of its own, until Ctrl-C."
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one message per line.")] = False,
) -> None:
    """Show SIP messages as a ladder diagram: sender, receiver, message and time.

    No output format contains passwords, keys or digest values. The number of a message does not depend on the other
    options. Exit status 1 if there is nothing to show.

    Example: wanderbus sip ladder trace.jsonl --user sip:alice@localhost --payloads

    Example: wanderbus sip ladder trace.jsonl --follow
    """
    if follow:
        given = {"--since": since, "--until": until, "--diff": diff, "--svg": svg, "--pcap": pcap, "--hep": hep}
        if wrong := next((name for name, value in given.items() if value is not None), None):
            raise ConfigurationError(f"{wrong} is for messages that have passed; leave it or --follow out")
        run_async(_follow(files, _Shown(call, None if user is None else _user(user), payloads, json)))
        return
    found = traced_messages(read_trace(files))
    first_us = found[0].entry.at_us if found else 0
    shown = select(
        found,
        call_id=call,
        user=None if user is None else _user(user),
        since_us=None if since is None else first_us + round(since * 1e6),
        until_us=None if until is None else first_us + round(until * 1e6),
    )
    if not shown:
        print_error("no message to show: the files have none, or none matches the options")
        raise typer.Exit(1)
    if diff is not None:
        print_lines(difference(_numbered(found, diff[0]), _numbered(found, diff[1])))
    elif svg or pcap or hep:
        _export(shown, svg, pcap, hep, hep_key)
    elif json:
        for each in shown:
            print_json(_as_json(each, shown[0]))
    else:
        print_lines(ladder(shown, payloads=payloads))


class _Shown(NamedTuple):
    """Options of messages that are shown as they pass."""

    call: str | None
    user: str | None
    payloads: bool
    as_json: bool


async def _follow(files: list[Path], shown: _Shown) -> None:
    """Print messages as they pass, until standard output has no reader."""
    growing = [GrowingTrace(path) for path in files]
    following, first = Following(), None
    ready = f"following {' and '.join(map(str, files))}, waiting for messages"
    if shown.as_json:
        print_progress_json("ready", ready)
    else:
        print_progress(ready)
    closed = asyncio.create_task(output_closed())
    try:
        while not closed.done():
            new = following.take(entry for each in growing for entry in each.read())
            for message in select(new, call_id=shown.call, user=shown.user):
                first = first or message
                _print_passing(message, first, shown)
            await asyncio.wait([closed], timeout=FOLLOW_S)
    finally:
        closed.cancel()
        for each in growing:
            each.close()


def _print_passing(message: TracedMessage, first: TracedMessage, shown: _Shown) -> None:
    if shown.as_json:
        print_json(_as_json(message, first))
        return
    ends = f"{place(message.entry.source)} -> {place(message.entry.destination)}"
    print_line(f"{message.number:4}  {seconds(message, first):10.4f}  {ends}  {message.label}")
    for line in message_lines(message) if shown.payloads else ():
        print_line(f"        {line}".rstrip())


def _export(
    shown: list[TracedMessage], svg: Path | None, capture: Path | None, hep: str | None, key: str | None
) -> None:
    if svg is not None:
        _write(svg, ladder_svg(shown).encode(), len(shown))
    if capture is not None:
        _write(capture, pcap(each.entry for each in shown), len(shown))
    if hep is not None:
        collector = resolve(hep, default_port=HEP_PORT)
        try:
            count = send_hep((hep3(each, key=key) for each in shown), collector)
        except OSError as error:
            raise Unreachable(f"cannot send to {hep}: {error.strerror}") from None
        print_line(f"{hep}: {count} messages sent")


def _write(path: Path, data: bytes, count: int) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None
    print_line(f"{path}: {count} messages")


def _user(text: str) -> str:
    try:
        return canonical_uri(text)
    except SIPParseError as error:
        raise ConfigurationError(f"--user {text!r}: {error}") from None


def _numbered(found: list[TracedMessage], number: int) -> TracedMessage:
    if not 1 <= number <= len(found):
        raise ConfigurationError(f"--diff {number}: the messages are numbered from 1 to {len(found)}")
    return found[number - 1]


def _as_json(each: TracedMessage, first: TracedMessage) -> dict[str, object]:
    entry = each.entry
    return {
        "number": each.number,
        "at_us": entry.at_us,
        "at_s": seconds(each, first),
        "source": place(entry.source),
        "destination": place(entry.destination),
        "transport": entry.transport,
        "direction": entry.direction,
        "label": each.sketch.label,
        "again": each.again,
        "message": dissect(entry.data),
        "body": each.sketch.body.decode(errors="backslashreplace"),
    }
