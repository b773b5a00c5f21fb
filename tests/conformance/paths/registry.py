"""Every path on which a question can be answered: what it gives, what it refuses, and how it is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path as Directory
from typing import Final, NamedTuple

from tests.conformance.paths import commands
from tests.conformance.paths.commands import Place
from tests.conformance.paths.questions import KINDS, RESTRICTIONS, STEPS_OF, Question
from tests.conformance.paths.reference import Answer, Gives
from tests.conformance.paths.worlds import World
from wanderbus.cli.event_output import Format


class Worlds(NamedTuple):
    """Servers and domains to which one case was put, and the lakes of it."""

    server: World
    beside: World
    spark: World | None
    """None if only paths without Spark are asked; then there are no lakes."""
    ordered: World
    decentralised: World
    lakes: Mapping[str, Directory]
    """Lakes of the single server and of both domains, by the names of their fields."""
    directory: Directory
    """For files that a path needs."""

    def named(self, name: str) -> World:
        """Return the server or the domain of this name."""
        found: World = getattr(self, name)
        return found

    def logs(self, name: str) -> list[Place]:
        """Return the logs of the servers of a world."""
        world = self.named(name)
        return [commands.in_log(world, server) for server in world.logs]

    def lake(self, name: str) -> list[Place]:
        """Return the lake of a world, as the only place."""
        return [commands.in_lake(self.named(name), self.lakes[name])]


class Path(NamedTuple):
    """A path, and the kinds of questions that it does not answer."""

    name: str
    gives: Gives
    world: str
    """Name of the world that it asks."""
    ask: Callable[[Worlds, Question], Answer]
    refuses: Mapping[str, str] = {}
    """Kinds of questions that it refuses, with a part of the line that says so."""
    lacks: Mapping[str, str] = {}
    """Kinds of questions that cannot be put to it, and the reason."""
    needs_spark: bool = False
    waits: bool = False
    """True if a pattern waits until the clock is at the times of the events."""
    is_away: bool = False
    """True if its user is away."""

    def is_for(self, kinds: list[str]) -> bool:
        """Return whether a question of these kinds can be put to the path."""
        return self.lacks.keys().isdisjoint(kinds)

    def refusal(self, kinds: list[str]) -> str | None:
        """Return a part of the line with which the path refuses a question of these kinds; None if it answers."""
        return next((text for kind, text in self.refuses.items() if kind in kinds), None)


_NO_PARENTS: Final = {"a parent": "subjects have parents in a domain only"}
_FILTER_ALONE: Final = dict.fromkeys(RESTRICTIONS, "it asks for a filter, not for a subscription")
_PATTERN_ALONE: Final = dict.fromkeys((kind for kind in KINDS if kind != "a pattern"), "it takes a pattern")
_NO_REPLAY: Final = {"a pattern": "detections are not replayed"}
_EVERY_ALONE: Final = dict.fromkeys(("ECI", "CESQL", "XML", *RESTRICTIONS, "a pattern"), "it takes a subject alone")
_NO_EVENTS: Final = {"a pattern": "a detection is no event of a case"}
_NO_MOMENT: Final = dict.fromkeys(RESTRICTIONS, "it tells the present moment")
_NEW: Final = {"other restrictions later": "it asks for all of the past at once"}
_ABSENT: Final = {"other restrictions later": "a user who is away changes nothing"}

_NO_PATTERN: Final = {"a pattern": "'pattern' is not one of 'eci', 'cesql', 'xml'"}
_NO_PAST: Final = {"a pattern": "a pattern begins with new events; leave out since"}
_SPARK_MATCHES: Final = {"a pattern": "use 'wanderbus pattern follow'"}
_NO_DECISION: Final = {"an operator's restriction": "the restriction 'few' is of the server's operator"}
_NO_ORDER: Final = {"subject `*`": "without a common order; subscribe to one subject, or live"}
_SCATTERED: Final = dict.fromkeys(
    (kind for kind in _PATTERN_ALONE if kind not in _NEW), "in the logs of all servers; subscribe live"
)


# Subscriptions -------------------------------------------------------------------------------------------------------


def _subscribed(
    name: str, world: str, way: str, place: Callable[[World, Question], str], refuses: Mapping[str, str]
) -> Path:
    """Return the path of subscriptions at a place of a world."""

    def answer(worlds: Worlds, asked: Question) -> Answer:
        there = worlds.named(world)
        return there.answers[way, place(there, asked), asked.name]

    lacks = {} if world in ("ordered", "decentralised") else _NO_PARENTS
    lacks = lacks | (_NEW if "since" in way else _ABSENT if way == "peek" else {})
    needs_spark = world == "spark" or "lake" in way
    return Path(name, "events", world, answer, refuses, lacks, needs_spark, waits=True, is_away=way == "peek")


def _subscriptions() -> list[Path]:
    leader, elsewhere, live, past = World.leader, World.elsewhere, "live", "since, log"
    every: list[tuple[str, str, str, Callable[[World, Question], str], Mapping[str, str]]] = [
        ("live: one server", "server", live, leader, {}),
        ("live: one server with XML", "server", "live XML", leader, {}),
        ("live: engine beside", "beside", live, leader, _SPARK_MATCHES),
        ("live: engine on Spark", "spark", live, leader, _SPARK_MATCHES),
        ("live: leader in an ordered domain", "ordered", live, leader, {}),
        ("live: elsewhere in an ordered domain", "ordered", live, elsewhere, {}),
        ("live: decentralised domain", "decentralised", live, elsewhere, {}),
        ("since: log of one server", "server", past, leader, _NO_PAST),
        ("since: lake of one server", "server", "since, lake", leader, _NO_PAST),
        ("since: lake of an ordered domain, leader", "ordered", "since, lake", leader, _NO_PAST | _NO_ORDER),
        ("since: lake of an ordered domain, elsewhere", "ordered", "since, lake", elsewhere, _NO_PAST | _NO_ORDER),
        ("since: lake of a decentralised domain", "decentralised", "since, lake", elsewhere, _NO_PAST | _SCATTERED),
        ("since: leader in an ordered domain", "ordered", past, leader, _NO_PAST | _NO_ORDER),
        ("since: elsewhere in an ordered domain", "ordered", past, elsewhere, _NO_PAST | _NO_ORDER),
        ("since: decentralised domain", "decentralised", past, elsewhere, _NO_PAST | _SCATTERED),
    ]
    return [_subscribed(*each) for each in every]


def _queues() -> list[Path]:
    """Return the queues of users who are away."""
    leader, elsewhere = World.leader, World.elsewhere
    return [
        _subscribed("peek: one server", "server", "peek", leader, {}),
        _subscribed("peek: leader in an ordered domain", "ordered", "peek", leader, {}),
        _subscribed("peek: elsewhere in an ordered domain", "ordered", "peek", elsewhere, {}),
        _subscribed("peek: decentralised domain", "decentralised", "peek", elsewhere, {}),
    ]


def _channels() -> list[Path]:
    """Return the ways to the numbered events of a channel."""
    one, scattered = {"subject `*`": "give one subject"}, dict.fromkeys(("every event", "a parent"), "decentralised")
    leader, elsewhere = World.leader, World.elsewhere
    every = [
        _subscribed("channel history: one server", "server", "channel", leader, one),
        _subscribed("channel history: ordered domain", "ordered", "channel", elsewhere, one),
        _subscribed("channel history: decentralised domain", "decentralised", "channel", elsewhere, one | scattered),
    ]
    return [each._replace(lacks={**each.lacks, **_EVERY_ALONE}) for each in every]


# Commands of the past ------------------------------------------------------------------------------------------------

_Choose = Callable[[World, Question], tuple[str, str]]
_Find = Callable[[Worlds, str], list[Place]]

_REPLAY, _REPLAY_AWAY = "replay", "replay for a user away"

_PLACES: Final[list[tuple[str, str, _Find]]] = [
    ("log of one server", "server", Worlds.logs),
    ("logs of an ordered domain", "ordered", Worlds.logs),
    ("lake of one server", "server", Worlds.lake),
    ("lake of an ordered domain", "ordered", Worlds.lake),
    ("lake of a decentralised domain", "decentralised", Worlds.lake),
]


def _at_places(
    ask: Callable[[list[Place], Question], Answer], find: _Find, world: str, worlds: Worlds, asked: Question
) -> Answer:
    return ask(find(worlds, world), asked)


def _explained(places: list[Place], asked: Question) -> Answer:
    """Ask about events of the log that has the first one, or of the lake."""
    of_first = (place for place in places if place.server == place.world.ids[0].origin)
    return commands.history_explain(next(of_first, places[0]), asked)


def _of_live(world: World, asked: Question) -> tuple[str, str]:
    """Return a server, and the subscription of its reader."""
    return (server := _server(world, asked)), world.subscriptions[server, asked.name]


def _of_away(world: World, asked: Question) -> tuple[str, str]:
    """Return a server, and the subscription of its user who is away."""
    return (server := _server(world, asked)), world.away[server, asked.name]


def _server(world: World, asked: Question) -> str:
    return world.leader(asked) if world.domain is None else world.elsewhere(asked)


def _replayed(find: _Choose, places: list[Place], asked: Question) -> Answer:
    (place,) = places
    return commands.history_replay(place, find(place.world, asked)[1])


def _history() -> list[Path]:
    every: list[tuple[str, Gives, Callable[[list[Place], Question], Answer]]] = [
        ("match", "events", commands.history_match),
        ("count", "count", commands.history_count),
        ("sample", "events", commands.history_sample),
        ("explain", "numbers", _explained),
        (_REPLAY, "numbers", partial(_replayed, _of_live)),
        (_REPLAY_AWAY, "numbers", partial(_replayed, _of_away)),
    ]
    paths = []
    for word, gives, ask in every:
        for where, world, find in _PLACES:
            is_replay = word in (_REPLAY, _REPLAY_AWAY)
            if is_replay and where == "logs of an ordered domain":
                continue  # a replay reads the log of one server, which has what arrived there
            refuses = _NO_DECISION if is_replay else _NO_PATTERN
            lacks = _NO_REPLAY if is_replay else _FILTER_ALONE
            lacks = lacks | (_NO_PARENTS if world == "server" else {}) | (_ABSENT if word == _REPLAY_AWAY else {})
            asking = partial(_at_places, ask, find, world)
            name, is_away = f"history {word}: {where}", word == _REPLAY_AWAY
            paths.append(Path(name, gives, world, asking, refuses, lacks, needs_spark=True, is_away=is_away))
    return paths


# Patterns ------------------------------------------------------------------------------------------------------------


def _log_of_steps(worlds: Worlds) -> Place:
    """Return the log of the server that leads the channel of the steps."""
    assert worlds.ordered.domain is not None
    return commands.in_log(worlds.ordered, worlds.ordered.domain.leader(STEPS_OF))


def _in_file(worlds: Worlds, asked: Question) -> Answer:
    return commands.pattern_file(worlds.ordered, worlds.directory, asked)


def _in_log(worlds: Worlds, asked: Question) -> Answer:
    return commands.pattern_run(worlds.logs("server")[0], asked)


def _in_log_of_leader(worlds: Worlds, asked: Question) -> Answer:
    return commands.pattern_run(_log_of_steps(worlds), asked)


def _in_lake(worlds: Worlds, asked: Question) -> Answer:
    return commands.pattern_run(worlds.lake("ordered")[0], asked)


def _followed(worlds: Worlds, asked: Question) -> Answer:
    return commands.pattern_follow(_log_of_steps(worlds), worlds.directory / f"follow-{asked.name}", asked)


def _patterns() -> list[Path]:
    every: list[tuple[str, str, Callable[[Worlds, Question], Answer]]] = [
        ("pattern run: file", "ordered", _in_file),
        ("pattern run: log of one server", "server", _in_log),
        ("pattern run: log of a leader", "ordered", _in_log_of_leader),
        ("pattern run: lake of a domain", "ordered", _in_lake),
        ("pattern follow: log of a leader", "ordered", _followed),
    ]
    return [
        Path(name, "detections", world, ask, {}, _PATTERN_ALONE, ask is not _in_file, waits=ask is _followed)
        for name, world, ask in every
    ]


# Explanations --------------------------------------------------------------------------------------------------------


def _matched(worlds: Worlds, asked: Question) -> Answer:
    return commands.filter_match(worlds.ordered, asked)


def _matched_cloudevent(worlds: Worlds, asked: Question) -> Answer:
    return commands.filter_match(worlds.ordered, asked, as_cloudevent=True)


def _explained_in(name: str, find: _Choose, worlds: Worlds, asked: Question) -> Answer:
    world = worlds.named(name)
    return commands.explain(world, *find(world, asked), asked)


def _printed(form: Format, worlds: Worlds, asked: Question) -> Answer:
    return commands.printed(worlds.server, form, asked)


def _forms() -> list[Path]:
    lacks = _NO_PARENTS | _NO_EVENTS
    return [Path(f"sub: {form}", "events", "server", partial(_printed, form), {}, lacks) for form in Format]


def _explanations() -> list[Path]:
    trace = _subscribed("trace: ordered domain", "ordered", "trace", World.elsewhere, {})
    return [
        Path("filter match: JSON", "numbers", "ordered", _matched, _NO_PATTERN, _FILTER_ALONE),
        Path("filter match: CloudEvent", "numbers", "ordered", _matched_cloudevent, _NO_PATTERN, _FILTER_ALONE),
        trace._replace(gives="matches", lacks=_NO_MOMENT),
        *(
            Path(f"{word}: {where}", "numbers", world, partial(_explained_in, world, find), {}, lacks, is_away=is_away)
            for word, find, is_away, own in (
                ("explain", _of_live, False, {}),
                ("explain for a user away", _of_away, True, _ABSENT),
            )
            for where, world, lacks in (("one server", "server", _NO_PARENTS | own), ("domain", "ordered", own))
        ),
    ]


PATHS: Final = (*_subscriptions(), *_forms(), *_queues(), *_channels(), *_history(), *_patterns(), *_explanations())
"""All paths, in the order of docs/paths.md."""
