"""Computations whose input somebody else chooses, each with its counted work, as ``./do fuzz cost`` searches them.

The input of each is bytes: a text, or several separated by NUL. docs/SECURITY.md has the table of all of them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import Final, NamedTuple

from fuzz import filters as texts
from fuzz import sip as messages
from fuzz.mutation import mutated
from wanderbus import cloudevents, filters, limits, protocol
from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.restrictions.restriction_check import RESTRICTION_WORK, admitted, blocked_by
from wanderbus.channels.interest.covering_index import SEARCH_WORK_MAX
from wanderbus.errors import EventError, FilterError, PatternError, Refused, RemoteProtocolError, WanderbusError
from wanderbus.event import Event, EventId, Notification, Position
from wanderbus.filters.compiled import compile_node
from wanderbus.filters.covering import covers
from wanderbus.filters.merging import MergedSet
from wanderbus.filters.normal import NormalForm
from wanderbus.filters.normalising import normal_form
from wanderbus.filters.work import Sizes, work_of
from wanderbus.filters.xml.notifications import read_notification, write_notification
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.patterns import AcceptedEvent, Pattern, PatternState, compile_pattern
from wanderbus.patterns.turns import Turn
from wanderbus.sip.message.message import parse_message
from wanderbus.sip.message.sdp import SessionDescription
from wanderbus.subscription import Daily
from wanderbus.work import WorkBudget, WorkExceeded

BROKER: Final = BrokerConfig()
WORK_NS: Final = 10.0
"""Nanoseconds of a unit of work on the reference machine (decision 0046)."""

Run = Callable[[], object]


class Prepared(NamedTuple):
    """A permitted computation: its counted work, and the function that does it once."""

    units: float
    run: Run
    fresh: Callable[[], Run] | None = None
    """Makes the function again, if it can run only once."""


class Computation(NamedTuple):
    """One row of the table: ``prepare`` returns None for an input that is refused."""

    name: str
    make: Callable[[Random], bytes]
    grow: Callable[[Random, bytes, bytes], bytes]
    """Joins two inputs to a larger one."""

    prepare: Callable[[bytes], Prepared | None]
    bound: float
    """Most units that are permitted."""

    unit_ns: float
    """Nanoseconds of a unit on the reference machine, at most."""


# Readers of text ------------------------------------------------------------------------------------------------------


def _reading(read: Callable[[str], object]) -> Callable[[bytes], Prepared | None]:
    """Return the preparation of a reader; its work is counted in characters before it reads."""

    def prepare(data: bytes) -> Prepared | None:
        text = data.decode(errors="surrogateescape")
        try:
            read(text)
        except WanderbusError:
            return None
        return Prepared(len(text), lambda: read(text))

    return prepare


def _reading_bytes(read: Callable[[bytes], object], longest: float = math.inf) -> Callable[[bytes], Prepared | None]:
    """Return the preparation of a reader of bytes; whoever calls it has no more than the ``longest``."""

    def prepare(data: bytes) -> Prepared | None:
        if len(data) > longest:
            return None
        try:
            read(data)
        except WanderbusError:
            return None
        return Prepared(len(data), lambda: read(data))

    return prepare


def _joined(*templates: bytes) -> Callable[[Random, bytes, bytes], bytes]:
    """Return the growth that puts two inputs into one of the templates."""

    def grow(random: Random, one: bytes, other: bytes) -> bytes:
        return random.choice(templates).replace(b"\1", one).replace(b"\2", other)

    return grow


def _filter_text(language: str) -> Callable[[Random], bytes]:
    return lambda random: texts.text_of(language, random).encode(errors="surrogatepass")


def _repeated_line(random: Random, one: bytes, other: bytes) -> bytes:
    """Repeat a line of a message."""
    lines = one.split(b"\r\n")
    at = random.randrange(len(lines))
    return b"\r\n".join([*lines[:at], *[lines[at]] * random.choice((2, 10, 100)), *lines[at + 1 :]])


_CONDITIONS: Final = ("sum(A.v) > 1", "A.v == B.v", "max(A.t) != 'x'", "count(A) >= 2 and not B.v < 3", "A.v + 1 == 2")


def _pattern(random: Random) -> bytes:
    repetition = random.choice(("", "{1,1000}", "{2}", "{1,}"))
    negated = random.choice(("", "then not C: z ", f"then not C: z where ({random.choice(_CONDITIONS[:1])}) "))
    condition = random.choice((*_CONDITIONS, "true"))
    select = random.choice(("", " select every", " skip past last event"))
    text = f"match A{repetition}: x {negated}then B: y where ({condition}) within 1 hour{select}"
    return f"{text} emit d with a0 = {random.choice(('sum(A.v)', 'B.v', 'max(A.t)'))}".encode()


def _grown_pattern(random: Random, one: bytes, other: bytes) -> bytes:
    """Add a condition, a step or an attribute of the detection."""
    text = one.decode(errors="replace")
    some = random.choice(_CONDITIONS)
    match random.randrange(4):
        case 0:
            joined = f" {random.choice(('or', 'and'))} ".join([some] * random.choice((1, 5, 40)))
            return text.replace(") within", f" or {joined}) within", 1).encode()
        case 1:
            sums = " + ".join(["sum(A.v)"] * random.choice((2, 20, 60)))
            return text.replace(") within", f" or ({sums}) == 1.5) within", 1).encode()
        case 2:
            name = f"s{random.randrange(1_000)}"
            part = random.choice((f"not {name}: z", f"{name}{{0,1}}: y", f"(not {name}: z or not {name}b: y)"))
            return text.replace("then B", f"then {part} then B", 1).encode()
        case _:
            numbers = random.sample(range(1_000), random.choice((1, 10, 40)))
            return (text + "".join(f", a{number} = sum(A.v) + max(A.v)" for number in numbers)).encode()


# Evaluation -----------------------------------------------------------------------------------------------------------


def _event_values(size: bytes) -> dict[str, object]:
    text = "x" * min(limits.EVENT_BYTES_MAX, len(size))
    return {"Price": 2.5, "a": text, "Text": text, "subject": text, "Stock": text}


def _evaluating(language: str) -> Callable[[bytes], Prepared | None]:
    def prepare(data: bytes) -> Prepared | None:
        expression, _, size = data.partition(b"\0")
        try:
            root = filters.parse(expression.decode(errors="surrogateescape"), language).root
        except FilterError:
            return None
        attributes = _event_values(size)
        units = work_of(root).units(Sizes(attributes))
        if units > BROKER.filter_work_max:
            return None
        test = compile_node(root)
        return Prepared(units, lambda: test(attributes))

    return prepare


def _evaluated(language: str) -> Callable[[Random], bytes]:
    return lambda random: _filter_text(language)(random) + b"\0" + b"x" * random.choice((1, 100, 5_000))


def _grown_evaluated(template: bytes) -> Callable[[Random, bytes, bytes], bytes]:
    def grow(random: Random, one: bytes, other: bytes) -> bytes:
        (left, _, size), (right, _, more) = one.partition(b"\0"), other.partition(b"\0")
        if random.random() < 0.3:
            return left + b"\0" + (size + more) * random.choice((1, 8))
        return template.replace(b"\1", left).replace(b"\2", right) + b"\0" + size

    return grow


def _restricting(data: bytes) -> Prepared | None:
    zones = ("UTC", "Europe/Berlin", "America/Sao_Paulo", "Asia/Kathmandu")
    windows = tuple(
        Daily(f"{one % 24:02}:{one % 60:02}", f"{(one + 1) % 24:02}:{one % 59:02}:01", zones[one % 4]) for one in data
    )
    kinds, event = CustomRestrictions(), Event("x", {})
    try:
        stored = admitted(windows, zone="UTC", kinds=kinds)
    except (Refused, WanderbusError):
        return None
    instant = 1_700_000_000_000_000

    def run() -> object:
        return blocked_by(
            stored, now_us=instant, received_us=instant, last_us=None, away=False, event=event, kinds=kinds
        )

    return Prepared(RESTRICTION_WORK * len(stored), run) if stored else None


# Covering and merging -------------------------------------------------------------------------------------------------


def _analysing(
    analyse: Callable[[list[filters.Filter], WorkBudget], object], bound: int
) -> Callable[[bytes], Prepared | None]:
    """Return the preparation of an analysis of filters of ``eci``, which are separated by NUL."""

    def prepare(data: bytes) -> Prepared | None:
        try:
            given = [filters.parse(each.decode(errors="surrogateescape"), "eci") for each in data.split(b"\0")[:8]]
        except FilterError:
            return None

        def run() -> WorkBudget:
            work = WorkBudget(bound)
            with contextlib.suppress(WorkExceeded):
                analyse(given, work)
            return work

        return Prepared(max(1, min(bound, run().done)), run)

    return prepare


def _analysed(random: Random) -> bytes:
    return b"\0".join(_filter_text("eci")(random) for _ in range(random.randint(2, 4)))


def _grown_analysed(random: Random, one: bytes, other: bytes) -> bytes:
    """Join filters of two inputs, or add filters."""
    if random.random() < 0.4:
        return one + b"\0" + other
    left, right = random.choice(one.split(b"\0")), random.choice(other.split(b"\0"))
    joined = random.choice((b"(%s) or (%s)", b"(%s) and (%s)", b"not (%s) or (%s)")) % (left, right)
    return one.replace(left, joined, 1)


def _merge(given: list[filters.Filter], work: WorkBudget) -> object:
    return MergedSet().update(dict(enumerate(map(_form_of, given))), work=work)


def _cover(given: list[filters.Filter], work: WorkBudget) -> object:
    return covers(_form_of(given[0]), _form_of(given[-1]), work)


@lru_cache(64)
def _form_of(given: filters.Filter) -> NormalForm:
    """Return the normal form, which is a computation of its own."""
    return normal_form(given)


# Patterns -------------------------------------------------------------------------------------------------------------

_STREAMS: Final = ("x" * 5, "x" * 30, "x" * 200, "xz" * 100, "x" * 900)


def _state_of(data: bytes) -> tuple[Pattern, Callable[[], PatternState]] | None:
    """Return a pattern, and what makes its state before one more event, which waits."""
    try:
        pattern = compile_pattern(data.decode(errors="replace"))
    except PatternError:
        return None
    stream = _STREAMS[len(data) % len(_STREAMS)] + "y"
    rows = [AcceptedEvent(Event(each, {"v": 1.0, "t": "x" * 50}), at, at) for at, each in enumerate(stream)]
    seen = pattern.classify(rows)

    def make() -> PatternState:
        state = pattern.add(pattern.start(), seen[:-1], len(stream) - 1)
        pattern.match(state, Turn(math.inf, BROKER.pattern_work_max, BROKER.user_pattern_events_max))
        return pattern.add(state, seen[-1:], len(stream) + 1)

    return pattern, make


def _matching(data: bytes) -> Prepared | None:
    if (found := _state_of(data)) is None:
        return None
    pattern, make = found
    turn = Turn(math.inf, BROKER.pattern_work_max, BROKER.user_pattern_events_max)
    state = make()
    key = next(iter(state.keys.values()), None)
    units = 0 if key is None or not key.waiting else pattern._matcher.work(key, next(iter(key.waiting.values())))
    if not units or units > BROKER.pattern_work_max or (not pattern.match(state, turn) and turn.left_out):
        return None

    def fresh() -> Run:
        state = make()

        def run() -> object:
            # What is complete is not taken: that is the work of `emit_pattern`.
            return pattern.match(state, _OneStep(math.inf, BROKER.pattern_work_max, BROKER.user_pattern_events_max))

        return run

    return Prepared(units, fresh(), fresh)


class _OneStep(Turn):
    """A turn that takes no detections."""

    def may_detect(self, taken: int) -> bool:
        """Return False."""
        return False


def _emitting(data: bytes) -> Prepared | None:
    if (found := _state_of(data)) is None:
        return None
    pattern, make = found
    matches = pattern.match(make(), Turn(math.inf, BROKER.pattern_work_max, BROKER.user_pattern_events_max))
    if not matches:
        return None
    dearest = max(matches, key=pattern.detection_work)
    units = pattern.detection_work(dearest)
    return Prepared(units, lambda: pattern.detection(dearest)) if units <= BROKER.pattern_work_max else None


# All ------------------------------------------------------------------------------------------------------------------


def _cloudevent(random: Random) -> bytes:
    attributes = {f"n{each}": random.choice([1, "x" * 50, [1, 2.5] * 10, True]) for each in range(random.randint(1, 9))}
    return cloudevents.write(Event("Trade", attributes), id="1", source="/x").encode()


def _notification(random: Random) -> bytes:
    event = cloudevents.read(_cloudevent(random))
    return write_notification(Notification(event, ("s-1", "s-2"), Position(1, 2), EventId("o", 1, 3))).encode()


def _wire(random: Random) -> bytes:
    return protocol.encode(protocol.Publish(1, cloudevents.read(_cloudevent(random))))


def _raises_declared(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
    def reads(data: bytes) -> object:
        try:
            return read(data)
        except (EventError, RemoteProtocolError, WanderbusError):
            raise
        except ValueError as error:
            raise EventError(str(error)) from None

    return reads


def _mutated(random: Random, one: bytes, other: bytes) -> bytes:
    return mutated(random, one, [one, other])


_ECI, _CESQL = b"(\1) or (\2)", b"(\1) OR (\2)"
_XML: Final = b"<filter><or>\1\2</or></filter>"

COMPUTATIONS: Final[Sequence[Computation]] = (
    Computation(
        "parse_eci",
        _filter_text("eci"),
        _joined(_ECI, b"(\1) and (\2)", b"not (\1)"),
        _reading(lambda text: filters.parse(text, "eci")),
        limits.EXPRESSION_CHARACTERS_MAX,
        3_000,
    ),
    Computation(
        "parse_cesql",
        _filter_text("cesql"),
        _joined(_CESQL, b"(\1) AND (\2)", b"NOT (\1)"),
        _reading(lambda text: filters.parse(text, "cesql")),
        limits.EXPRESSION_CHARACTERS_MAX,
        3_000,
    ),
    Computation(
        "parse_xml",
        _filter_text("xml"),
        lambda random, one, other: _XML.replace(b"\1", _inside(one)).replace(b"\2", _inside(other)),
        _reading(lambda text: filters.parse(text, "xml")),
        limits.XML_FILTER_BYTES_MAX,
        2_000,
    ),
    Computation(
        "parse_pattern",
        _pattern,
        _grown_pattern,
        _reading(compile_pattern),
        limits.EXPRESSION_CHARACTERS_MAX,
        20_000,
    ),
    Computation(
        "parse_sip",
        lambda random: messages.make_message(random)[: limits.SIP_HEAD_BYTES_MAX],
        _repeated_line,
        _reading_bytes(parse_message),
        limits.SIP_MESSAGE_BYTES_MAX,
        1_000,
    ),
    Computation(
        "parse_sdp",
        messages.make_description,
        _repeated_line,
        _reading_bytes(SessionDescription.parse, limits.SIP_MESSAGE_BYTES_MAX),
        limits.SIP_MESSAGE_BYTES_MAX,
        1_000,
    ),
    Computation(
        "parse_cloudevent",
        _cloudevent,
        _mutated,
        _reading_bytes(_raises_declared(cloudevents.read)),
        limits.CLOUDEVENT_BYTES_MAX,
        1_000,
    ),
    Computation(
        "parse_notification",
        _notification,
        _mutated,
        _reading(read_notification),
        limits.XML_NOTIFICATION_BYTES_MAX,
        2_000,
    ),
    Computation(
        "decode_message",
        _wire,
        _mutated,
        _reading_bytes(_raises_declared(protocol.decode_from_agent)),
        limits.MESSAGE_BYTES_MAX,
        1_000,
    ),
    Computation(
        "evaluate_eci",
        _evaluated("eci"),
        _grown_evaluated(_ECI),
        _evaluating("eci"),
        BROKER.filter_work_max,
        WORK_NS,
    ),
    Computation(
        "evaluate_cesql",
        _evaluated("cesql"),
        _grown_evaluated(_CESQL),
        _evaluating("cesql"),
        BROKER.filter_work_max,
        WORK_NS,
    ),
    Computation(
        "restrictions",
        lambda random: random.randbytes(random.randint(1, 20)),
        lambda random, one, other: one + other,
        _restricting,
        RESTRICTION_WORK * limits.RESTRICTIONS_MAX,
        WORK_NS,
    ),
    Computation(
        "normal_form",
        _analysed,
        _grown_analysed,
        _analysing(lambda given, work: normal_form(given[0], work=work), limits.NORMAL_FORM_WORK_MAX),
        limits.NORMAL_FORM_WORK_MAX,
        WORK_NS,
    ),
    Computation("cover", _analysed, _grown_analysed, _analysing(_cover, SEARCH_WORK_MAX), SEARCH_WORK_MAX, WORK_NS),
    Computation(
        "merge",
        _analysed,
        _grown_analysed,
        _analysing(_merge, limits.MERGE_WORK_MAX),
        limits.MERGE_WORK_MAX,
        WORK_NS,
    ),
    Computation("match_pattern", _pattern, _grown_pattern, _matching, BROKER.pattern_work_max, WORK_NS),
    Computation("emit_pattern", _pattern, _grown_pattern, _emitting, BROKER.pattern_work_max, WORK_NS),
)


def _inside(text: bytes) -> bytes:
    """Return the content of a filter in XML."""
    return text.partition(b">")[2].rpartition(b"</")[0]
