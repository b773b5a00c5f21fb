"""Ladder diagrams of a trace as plain text, and the difference of two messages (SPEC U-06; drawn as in RFC 3665).

Participants are columns in the order of appearance, one for each address; time runs down in seconds since the first
message shown. Strangers choose how many addresses and messages a trace has, so the busiest addresses have columns, the
others share one, and a diagram ends after :data:`MESSAGES_MAX`. Text from the network is always escaped for the
terminal.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from wanderbus.machine import Address
from wanderbus.sip.message.header_access import canonical_name
from wanderbus.sip.message.uri import bracketed
from wanderbus.sip.trace.trace_messages import TracedMessage, printable

NAME_CHARACTERS_MAX: Final = 40
"""Characters of a participant's name; the rest is cut off."""

PARTICIPANTS_MAX: Final = 32
"""Columns of a diagram; the last one is shared if there are more addresses."""

MESSAGES_MAX: Final = 5_000
"""Messages in one diagram; the rest is counted."""

COMPARED_LINES_MAX: Final = 2_000
"""Lines of a body that are compared with another's; the rest is counted."""

_GUTTER: Final = len("1234  12345.1234  ")
_PAYLOAD_INDENT: Final = " " * 8
_ARROW_CHARACTERS: Final = len("|- label ->") - len("label")


class Participant(msgspec.Struct, frozen=True):
    """One column: an address, and its owner as far as the messages name it; several addresses have none."""

    address: Address | None
    name: str = ""

    @property
    def place(self) -> str:
        """``host:port``, empty for several addresses."""
        return "" if self.address is None else place(self.address)


def place(address: Address) -> str:
    """Return an address as ``host:port``, safe to display."""
    return f"{bracketed(printable(address[0]))}:{address[1]}"


class LadderColumns(msgspec.Struct, frozen=True):
    """The columns of a diagram, and the place of each address among them."""

    participants: list[Participant]
    index: dict[Address, int]

    def ends(self, each: TracedMessage) -> tuple[int, int]:
        """Return the columns of the source and the destination of a message."""
        return self.index[each.entry.source], self.index[each.entry.destination]


def columns(shown: Sequence[TracedMessage]) -> LadderColumns:
    """Return the columns of a diagram of ``shown``: the busiest addresses, and one for all others."""
    found = participants(shown)
    own = found
    if len(found) > PARTICIPANTS_MAX:
        messages = Counter(address for each in shown for address in (each.entry.source, each.entry.destination))
        busiest = {address for address, _ in messages.most_common(PARTICIPANTS_MAX - 1)}
        own = [each for each in found if each.address in busiest]
    index = {each.address: number for number, each in enumerate(own) if each.address is not None}
    if others := len(found) - len(own):
        own = [*own, Participant(None, f"{others} other addresses")]
    return LadderColumns(own, {each.address: index.get(each.address, len(own) - 1) for each in found if each.address})


def omission(shown: Sequence[TracedMessage]) -> str:
    """Return a line about the messages after the last one of a diagram, empty if it has all."""
    rest = shown[MESSAGES_MAX:]
    if not rest:
        return ""
    return f"{len(rest)} more messages, the first after {seconds(rest[0], shown[0]):.4f} s: show a part of the trace"


def participants(shown: Iterable[TracedMessage]) -> list[Participant]:
    """Return the participants, in order of appearance.

    The name is the user in From of a request that has passed no proxy yet; an address that sent none has no name. ACK
    and CANCEL do not count: a proxy makes its own in the name of the caller (RFC 3261 16.10, 17.1.1.3).
    """
    names: dict[Address, str] = {}
    for each in shown:
        entry, sketch = each.entry, each.sketch
        for address in (entry.source, entry.destination):
            names.setdefault(address, "")
        of_its_own = sketch.hops == 1 and sketch.method not in (None, "ACK", "CANCEL")
        if of_its_own and sketch.from_uri is not None and not names[entry.source]:
            names[entry.source] = printable(sketch.from_uri.user or "")[:NAME_CHARACTERS_MAX]
    return [Participant(address, name) for address, name in names.items()]


def seconds(each: TracedMessage, first: TracedMessage) -> float:
    """Return the time from ``first`` to a message, in seconds."""
    return (each.entry.at_us - first.entry.at_us) / 1e6


def ladder(shown: Sequence[TracedMessage], *, payloads: bool = False) -> str:
    """Return the diagram of ``shown``, one line a message, with the messages themselves below their lines if wanted.

    Each line begins with the number of the message and the seconds since the first.
    """
    if not shown:
        return ""
    drawn = shown[:MESSAGES_MAX]
    columns_of = columns(drawn)
    parties = columns_of.participants
    centres = _centres(columns_of, drawn)
    lines = [_centred([each.name for each in parties], centres)] if any(each.name for each in parties) else []
    lines += [_centred([each.place for each in parties], centres), _lifelines(centres)]
    for each in drawn:
        stamp = f"{each.number:4}  {seconds(each, shown[0]):10.4f}  "
        start, end = (centres[number] for number in columns_of.ends(each))
        lines.append(stamp + _arrow_line(each.label, start, end, centres)[_GUTTER:])
        if payloads:
            lines += [*(_PAYLOAD_INDENT + line for line in message_lines(each)), _lifelines(centres)]
    lines += filter(None, [omission(shown)])
    return "".join(f"{line.rstrip()}\n" for line in lines)


def message_lines(each: TracedMessage) -> list[str]:
    """Return a message line by line, safe to display, header fields in long form and unfolded."""
    sketch = each.sketch
    if not sketch.headers:
        return _text_lines(each.entry.data)
    fields = [printable(f"{canonical_name(name)}: {value}") for name, value in sketch.headers]
    return [sketch.start_line, *fields, *(["", *_text_lines(sketch.body)] if sketch.body else [])]


def difference(one: TracedMessage, other: TracedMessage) -> str:
    """Return the difference of ``other`` from ``one``, as a unified diff with all lines.

    Header fields are compared by name, at any position; the body line by line, up to :data:`COMPARED_LINES_MAX`.
    """
    lines = [f"--- {_title(one)}", f"+++ {_title(other)}"]
    lines += _compared([one.sketch.start_line], [other.sketch.start_line])
    for name in dict.fromkeys(name for name, _ in (*one.sketch.headers, *other.sketch.headers)):
        lines += _compared(_fields(one, name), _fields(other, name))
    bodies = [_first_lines(each.sketch.body if each.sketch.headers else each.entry.data) for each in (one, other)]
    if any(bodies):
        lines += [" ", *_compared(*bodies)]
    return "".join(f"{line}\n" for line in lines)


def _centres(columns: LadderColumns, shown: Sequence[TracedMessage]) -> list[int]:
    """Return the columns of the lifelines: as close as the names, and the label of every arrow, allow."""
    gap = 2 + max(len(text) for each in columns.participants for text in (each.name, each.place))
    for each in shown:
        start, end = columns.ends(each)
        span = abs(start - end)
        needed = len(each.label) + _ARROW_CHARACTERS
        gap = max(gap, -(-needed // span) if span else 0)
    return [_GUTTER + gap // 2 + index * gap for index in range(len(columns.participants))]


def _centred(texts: list[str], centres: list[int]) -> str:
    line = ""
    for text, centre in zip(texts, centres, strict=True):
        line = line.ljust(centre - len(text) // 2) + text
    return line


def _lifelines(centres: list[int]) -> str:
    return _centred(["|"] * len(centres), centres)


def _arrow_line(label: str, start: int, end: int, centres: list[int]) -> str:
    """Return one line: lifelines, and the arrow with its label from column ``start`` to ``end``."""
    line = _lifelines(centres)
    low, high = min(start, end), max(start, end)
    if low == high:
        drawn = f"|<> {label}"
        return line[:low] + drawn + line[low + len(drawn) :]
    shaft = f" {label} ".center(high - low - 2, "-")
    return line[: low + 1] + (f"{shaft}>" if start < end else f"<{shaft}") + line[high:]


def _text_lines(data: bytes) -> list[str]:
    text = data.decode(errors="backslashreplace").replace("\r\n", "\n").removesuffix("\n")
    return [printable(line) for line in text.split("\n")] if text else []


def _first_lines(data: bytes) -> list[str]:
    lines = _text_lines(data)
    rest = len(lines) - COMPARED_LINES_MAX
    return lines if rest <= 0 else [*lines[:COMPARED_LINES_MAX], f"({rest} more lines)"]


def _fields(each: TracedMessage, name: str) -> list[str]:
    return [printable(f"{key}: {value}") for key, value in each.sketch.headers if key == name]


def _title(each: TracedMessage) -> str:
    return f"{each.number}  {each.label}  {place(each.entry.source)} -> {place(each.entry.destination)}"


def _compared(one: Sequence[str], other: Sequence[str]) -> Iterator[str]:
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, one, other).get_opcodes():
        if tag == "equal":
            yield from (f" {line}" for line in one[i1:i2])
        else:
            yield from (f"-{line}" for line in one[i1:i2])
            yield from (f"+{line}" for line in other[j1:j2])
