"""Answers of the command line, which runs in this process with one session of Spark."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.conformance.paths.questions import Question, shown
from tests.conformance.paths.reference import Answer, Refusal, concerns_subject, is_match, without_ends
from tests.conformance.paths.running import command, refusal_in, rows_of
from tests.conformance.paths.worlds import World, is_for_xml
from wanderbus import cloudevents, event_text
from wanderbus.cli.event_output import Format, print_notification
from wanderbus.event import Event
from wanderbus.filters import xml
from wanderbus.subscription import PATTERN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def using(spark: SparkSession) -> Iterator[None]:
    """Let the commands in the block use this session."""

    @contextmanager
    def session(*_: object) -> Iterator[SparkSession]:
        yield spark

    with ExitStack() as stack:
        for module in ("pipeline.past_events", "pipeline.report", "pipeline.gold", "pattern.follow"):
            stack.enter_context(patch(f"wanderbus.cli.{module}.session", session))
        yield


class Place:
    """A lake or a log, with the options that name it for a command."""

    def __init__(self, world: World, options: Sequence[str], server: str | None = None) -> None:
        self.world = world
        self.options = options
        self.server = server
        """The server of a domain whose log it is; None for a lake, and for the only server."""

    def number(self, row: Mapping[str, Any]) -> int:
        """Return the number in the case of the event of a row."""
        return self.world.number_at(row["offset"], row.get("server", self.server))


def in_log(world: World, server: str) -> Place:
    """Return the log of a server."""
    return Place(world, ["--log", str(world.logs[server])], None if world.domain is None else server)


def in_lake(world: World, lake: Path) -> Place:
    """Return a lake."""
    return Place(world, ["--lake", str(lake)])


def filter_words(asked: Question) -> list[str]:
    """Return a filter behind the option of its language; it may begin with a minus sign."""
    return ["--language", asked.language, "--", asked.expression]


def history_match(places: Sequence[Place], asked: Question) -> Answer:
    """Return the events that ``history match`` prints."""
    found = []
    for place in places:
        words = ["history", "match", "--subject", asked.subject, *place.options, "--json", *filter_words(asked)]
        rows = rows_of(*words)
        if isinstance(rows, Refusal):
            return rows
        found += [(place.number(row), shown(event_of(row))) for row in rows]
    return found


def history_count(places: Sequence[Place], asked: Question) -> Answer:
    """Return the sum of what ``history count`` prints."""
    total = 0
    for place in places:
        words = ["history", "count", "--subject", asked.subject, *place.options, "--json", *filter_words(asked)]
        rows = rows_of(*words)
        if isinstance(rows, Refusal):
            return rows
        total += rows[0]["events"]
    return total


def history_sample(places: Sequence[Place], asked: Question) -> Answer:
    """Return the events of a sample that is as large as the case: all of them."""
    found = []
    for place in places:
        size = ["-n", str(len(place.world.case.events) + 1)]
        words = ["history", "sample", "--subject", asked.subject, *size, *place.options, "--json", *filter_words(asked)]
        rows = rows_of(*words)
        if isinstance(rows, Refusal):
            return rows
        found += [(place.number(row), shown(event_of(row))) for row in rows]
    return found


def history_replay(place: Place, identity: str) -> Answer:
    """Return the events of which a subscription generated notifications, by ``history replay``."""
    rows = rows_of("history", "replay", identity, *place.options, "--json")
    if isinstance(rows, Refusal):
        return rows
    return [place.number(row) for row in rows if row["restricted_by"] is None and not row["undecided"]]


def history_explain(place: Place, asked: Question) -> Answer:
    """Return the events of which ``history explain`` says that they match; it is asked about two of the case.

    These are one event that matches and one that does not, of another subject than the question's if there is one; the
    others are taken from the reference.
    """
    case = place.world.case
    own = [n for n, each in enumerate(place.world.ids) if place.server in (None, each.origin)]
    right = {n: is_match(case, asked, case.events[n]) for n in range(len(case.events))}
    others_first = sorted(own, key=lambda n: case.events[n].subject == asked.subject)
    for number in {n for truth in (True, False) for n in [each for each in others_first if right[each] is truth][:1]}:
        identity = place.world.ids[number]
        several = place.server is None and len(place.world.logs) > 1
        offset = f"{identity.origin}:{identity.number}" if several else str(identity.number)
        words = ["history", "explain", "--subject", asked.subject, "--offset", offset, *place.options, "--json"]
        rows = rows_of(*words, *filter_words(asked))
        if isinstance(rows, Refusal):
            return rows
        right[number] = rows[0]["matches"] and rows[0]["is_subject"]
    return [number for number, truth in right.items() if truth]


def pattern_run(place: Place, asked: Question) -> Answer:
    """Return the detections of ``pattern run``."""
    return _detections(place.world, rows_of("pattern", "run", asked.expression, *place.options, "--json"))


def pattern_follow(place: Place, directory: Path, asked: Question) -> Answer:
    """Return the detections of ``pattern follow`` up to the end of the log."""
    words = ["pattern", "follow", asked.expression, *place.options, "--checkpoint", str(directory), "--once", "--json"]
    return _detections(place.world, rows_of(*words))


def pattern_file(world: World, directory: Path, asked: Question) -> Answer:
    """Return the detections of ``pattern run`` in a file of the events."""
    lines = [
        {
            "subject": event.subject,
            "attributes": cloudevents.to_json(event.attributes),
            "at_us": number,
            "offset": number,
            "id": str(world.ids[number]),
        }
        for number, event in enumerate(world.case.events)
    ]
    file = directory / "events.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    domain = [] if world.domain is None else ["--event-domain", str(world.domain.file)]
    return _detections(world, rows_of("pattern", "run", asked.expression, "--events", str(file), *domain, "--json"))


def _detections(world: World, rows: list[dict[str, Any]] | Refusal) -> Answer:
    if isinstance(rows, Refusal):
        return rows
    return without_ends(world.case, [tuple(world.number(each["id"]) for each in row["events"]) for row in rows])


def filter_match(world: World, asked: Question, *, as_cloudevent: bool = False) -> Answer:
    """Return the events that ``filter match`` matches, among those of the subject: it does not compare subjects."""
    found = []
    for number, event in enumerate(world.case.events):
        if asked.language != PATTERN and not concerns_subject(world.case, asked, event):
            continue
        if as_cloudevent:
            text = cloudevents.write(event, id="1", source="/s")
        else:
            attributes = cloudevents.to_json(event.attributes)
            text = json.dumps({"subject": event.subject, "attributes": attributes})
        status, lines, complaint = command("filter", "match", "--json", *filter_words(asked), text)
        if status not in (0, 1) or not lines:
            return refusal_in(complaint)
        if json.loads(lines[0])["truth"] is True:
            found.append(number)
    return found


NOTIFIED = {"delivered", "queued", "dropped", "took_part"}
"""Outcomes of an event of which a notification was generated, or which matches a step of a pattern."""


def explain(world: World, server: str, subscription: str, asked: Question) -> Answer:
    """Return the events of which ``explain`` says that a subscription at a server got a notification."""
    found = []
    directory = world.logs[server] if world.domain is None else world.domain.directory
    words = [subscription, "--data-dir", str(directory), "--json"]
    for number, identity in enumerate(world.ids):
        rows = rows_of("explain", str(identity), *words)
        if isinstance(rows, Refusal):
            return rows
        if rows[0]["outcome"] in NOTIFIED:
            found.append(number)
        is_concerned = asked.language == PATTERN or concerns_subject(world.case, asked, world.case.events[number])
        if (rows[0]["outcome"] == "wrong_subject") is is_concerned:
            return Refusal(f"event {number} of the subject {world.case.events[number].subject} is explained by {rows}")
    return found


def event_of(row: Mapping[str, Any]) -> Event:
    """Return the event of a row of JSON."""
    return Event(row["subject"], cloudevents.from_json(row["attributes"]))


_READERS: Mapping[Format, Callable[[str], Event]] = {
    Format.text: event_text.read,
    Format.json: lambda line: event_of(json.loads(line)),
    Format.cloudevents: cloudevents.read,
    Format.xml: lambda line: xml.read_notification(line).event,
}


def printed(world: World, form: Format, asked: Question) -> Answer:
    """Return the events that ``sub`` prints in a form, for the only server; it prints one line for each."""
    way = "live XML" if form is Format.xml else "live"
    found = []
    for each in world.notifications[way, world.leader(asked), asked.name]:
        with redirect_stdout(io.StringIO()) as out:
            print_notification(each, form)
        lines = out.getvalue().splitlines()
        if form is Format.xml and not lines and not is_for_xml(each.event):
            event = each.event  # it says that it skips this one
        else:
            (line,) = lines
            event = _READERS[form](line)
        found.append((world.number(each.id), shown(event)))
    return found
