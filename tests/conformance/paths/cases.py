"""The small case, which has each kind of question and of event, and cases that are drawn from a seed."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from random import Random
from typing import Any, Final

from tests.conformance.paths.questions import STEPS_OF, Case, Question, pattern_question, stream_events
from tests.conformance.paths.restricting import FEW, OVER, RARELY, RARELY_AWAY, day_and_night
from tests.filters import cesql_trees
from tests.filters.trees import random_event, random_node
from tests.patterns.enumerator import E, P, S, Seq
from wanderbus.client.publishes import encoded
from wanderbus.errors import EventError, FilterError
from wanderbus.event import Event
from wanderbus.filters import eci, parse, xml
from wanderbus.filters.ast import Node
from wanderbus.filters.cesql.writing import write as write_cesql
from wanderbus.subscription import EVERY_SUBJECT, Restriction

PARENTS: Final = {"Answer": "Position", "Reply": "Answer", "event/quick": "event"}
ODD: Final = "ação 'ü\" $(1)/é"
"""A subject that a shell, a path or a query could misread."""

YEARS: Final = (
    datetime(1, 1, 1, 0, 10, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 57, tzinfo=UTC),
    datetime(2001, 2, 28, 23, 59, 58, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 50, tzinfo=UTC),
)
"""Beginnings of the streams of patterns."""

_EAST: Final = timezone(timedelta(hours=2))
_WEST: Final = timezone(-timedelta(hours=3, minutes=30))


def small_case() -> Case:
    """Return the case of ``./do test``."""
    values: list[dict[str, Any]] = [
        {"n": 0, "at": datetime(2026, 11, 21, 12, tzinfo=_EAST), "flag": True, "text": "x"},
        {"n": 1.0, "at": datetime(1, 1, 1, tzinfo=UTC), "flag": False, "text": ""},
        {"n": 2**63 - 1, "at": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "text": "é\U0010ffff"},
        {"n": math.inf, "at": datetime(9999, 12, 31, 20, tzinfo=_WEST), "text": "\"\\'<&>\n\t"},
        {"n": -math.inf, "at": datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC)},
        {"n": [1, 2.5, "x", True, datetime(2026, 11, 21, 12, tzinfo=_EAST)], "Text": "upper", "text": "lower"},
        {"n": [], "id": "i", "subject": "s", "offset": 3, "at_us": 4, "server": "q"},
        {},
    ]
    subjects = ("Position", "Answer", "Reply", ODD)
    events = [Event(subjects[n % len(subjects)], each) for n, each in enumerate([*values, *values[:3]])]
    odd_name = "my `name`\\ x-y.z:1"
    events += [Event("Reply", {odd_name: 5, "n": -0.0}), Event("Position", {"n": 2**53 + 1, "list": ["a", "b"]})]
    stream = [E(0, 0, "x", "a", 1), E(1, 1, "x", "a", 2), E(2, 2, "y", "b", 1), E(3, 3, "x", "b", 2)]
    quick = stream_events(stream, YEARS[1], "event/quick")
    pattern = P(Seq((S("A", "a"), S("B", "b")), (False,)), 5, "first")
    day, night = day_and_night()
    questions = (
        Question("all", EVERY_SUBJECT),
        Question("parent", "Position"),
        Question("eci", "Answer", "not (n < 1) and not (flag == true and n > 5) or any n (== x)"),
        Question("eci-dates", EVERY_SUBJECT, "at == 2026-11-21T10:00:00Z or at < 1900-01-01 or at > 9999-01-01"),
        Question("eci-odd", "Position", "`my \\`name\\`\\\\ x-y.z:1` == 5"),
        Question("cesql", EVERY_SUBJECT, "at = '2026-11-21T10:00:00Z' OR text LIKE '%low%'", "cesql"),
        Question("xml", ODD, xml.write(eci.read("n in (0, 2.5) or n > 1e300 and exists at")), "xml"),
        Question("rare", "Position", "exists n", restrictions=(RARELY,)),
        Question("never", "Answer", "", restrictions=(OVER,)),
        Question("night", "Position", "exists n", restrictions=(night,)),
        Question("day", "Answer", "not (text == x)", restrictions=(night, day)),
        Question("few", EVERY_SUBJECT, "exists n", restrictions=(FEW,)),
        Question("away", "Position", "exists text", restrictions=(RARELY_AWAY,)),
        Question("later", "Reply", later=(OVER,)),
        Question("steps", STEPS_OF, "exists k", restrictions=(RARELY,)),  # beside the pattern
        pattern_question("pattern", pattern),
    )
    return Case(PARENTS, (*events, *quick), questions)


def drawn_case(seed: int, questions: int = 6, events: int = 10) -> Case:
    """Return a case that is drawn from ``seed``."""
    random = Random(seed)
    subjects = (*dict.fromkeys([*PARENTS, *PARENTS.values()]), ODD, "Other")
    nodes = [random_node(random, 3) for _ in range(questions)]
    asked = [_filter(random, f"q{n}", node, (*subjects, EVERY_SUBJECT)) for n, node in enumerate(nodes)]
    plain = [subject for subject in subjects if not subject.startswith("event")]
    drawn = [
        Event(random.choice(plain), random_event(random, random.choice(nodes)).attributes) for _ in range(4 * events)
    ]
    stream = [
        E(random.randrange(8), n, random.choice("xxy"), random.choice("abc"), random.choice((None, 0, 1, 2)))
        for n in range(7)
    ]
    quick = stream_events(stream, random.choice(YEARS), random.choice(("event", "event/quick")))
    where = random.choice((None, ("more", "A"), ("same", "A"), ("few", "A")))
    steps = (S("A", random.choice(("a", "ab"))), S("B", random.choice("bc"), where))
    mode = random.choice(("first", "every", "past"))
    pattern = P(Seq(steps, (random.random() < 0.3,)), random.randint(1, 6), mode)
    publishable = [each for each in drawn if _is_publishable(each)][:events]
    every = Question("all", EVERY_SUBJECT)  # so each place waits for all events
    return Case(PARENTS, (*publishable, *quick), (every, *asked, pattern_question("pattern", pattern)), seed)


def _filter(random: Random, name: str, node: Node, subjects: tuple[str, ...]) -> Question:
    subject, language = random.choice(subjects), random.choice(("eci", "cesql", "xml"))
    day, night = day_and_night()
    each: tuple[Restriction, ...] = (RARELY, RARELY_AWAY, OVER, day, night, FEW)
    restrictions = random.choice([(), (), (OVER, day), *((one,) for one in each)])
    later = random.choice((None, None, None, (OVER,), ()))
    if subject == EVERY_SUBJECT:
        restrictions, later = (), None  # the first event of several channels is not always the same
    match language:
        case "eci":
            return Question(name, subject, eci.write(node), language, restrictions, later)
        case "xml":
            return Question(name, subject, xml.write(node), language, restrictions, later)
    while not _is_cesql(text := write_cesql(cesql_trees.random_expression(random))):
        pass
    return Question(name, subject, text, "cesql", restrictions, later)


def _is_cesql(text: str) -> bool:
    try:
        parse(text, "cesql")
    except FilterError:
        return False
    return True


def _is_publishable(event: Event) -> bool:
    try:
        encoded(event)
    except EventError:
        return False
    return True
