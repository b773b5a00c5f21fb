"""Ladder diagrams of a trace as plain text, and the difference of two messages (SPEC U-06; drawn as in RFC 3665).

Participants are columns in the order of appearance, one for each address; time runs down in seconds since the first
message shown. Text from the network is always escaped for the terminal.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from wanderbus.machine import Address
from wanderbus.sip.message.header_access import canonical_name
from wanderbus.sip.message.uri import bracketed
from wanderbus.sip.trace.trace_messages import TracedMessage, printable

NAME_CHARACTERS_MAX: Final = 40
"""Characters of a participant's name; the rest is cut off."""

_GUTTER: Final = len("1234  12345.1234  ")
_PAYLOAD_INDENT: Final = " " * 8
_ARROW_CHARACTERS: Final = len("|- label ->") - len("label")


class Participant(msgspec.Struct, frozen=True):
    """One column: an address, and its owner as far as the messages name it."""

    address: Address
    name: str = ""

    @property
    def place(self) -> str:
        """``host:port``."""
        return place(self.address)


def place(address: Address) -> str:
    """Return an address as ``host:port``, safe to display."""
    return f"{bracketed(printable(address[0]))}:{address[1]}"


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
    columns = participants(shown)
    order = {column.address: index for index, column in enumerate(columns)}
    centres = _centres(columns, shown, order)
    lines = [_centred([column.name for column in columns], centres)] if any(column.name for column in columns) else []
    lines += [_centred([column.place for column in columns], centres), _lifelines(centres)]
    for each in shown:
        stamp = f"{each.number:4}  {seconds(each, shown[0]):10.4f}  "
        start, end = centres[order[each.entry.source]], centres[order[each.entry.destination]]
        lines.append(stamp + _arrow_line(each.label, start, end, centres)[_GUTTER:])
        if payloads:
            lines += [*(_PAYLOAD_INDENT + line for line in message_lines(each)), _lifelines(centres)]
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

    Header fields are compared by name, at any position; the body line by line.
    """
    lines = [f"--- {_title(one)}", f"+++ {_title(other)}"]
    lines += _compared([one.sketch.start_line], [other.sketch.start_line])
    for name in dict.fromkeys(name for name, _ in (*one.sketch.headers, *other.sketch.headers)):
        lines += _compared(_fields(one, name), _fields(other, name))
    bodies = [_text_lines(each.sketch.body if each.sketch.headers else each.entry.data) for each in (one, other)]
    if any(bodies):
        lines += [" ", *_compared(*bodies)]
    return "".join(f"{line}\n" for line in lines)


def _centres(columns: list[Participant], shown: Sequence[TracedMessage], order: dict[Address, int]) -> list[int]:
    """Return the columns of the lifelines: as close as the names, and the label of every arrow, allow."""
    gap = 2 + max(len(text) for column in columns for text in (column.name, column.place))
    for each in shown:
        span = abs(order[each.entry.source] - order[each.entry.destination])
        needed = len(each.label) + _ARROW_CHARACTERS
        gap = max(gap, -(-needed // span) if span else 0)
    return [_GUTTER + gap // 2 + index * gap for index in range(len(columns))]


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
