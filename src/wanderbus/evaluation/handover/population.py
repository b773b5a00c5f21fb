"""Subscriptions of users and residents, and the events, all drawn from one seed (EVALUATIONS E6).

Filters are those of the merging experiment. Each has a constraint on its user beside, so that filters of different
users never cover each other: the saturation is exactly as given. Residents stay at their server. They have a share of
each user's filters there, half of them without one constraint, which covers the user's filter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from random import Random
from typing import Final

from wanderbus import protocol
from wanderbus.evaluation.handover.experiment import HandoverJob
from wanderbus.evaluation.merging.mixes import REFERENCE
from wanderbus.evaluation.merging.workload import Workload, WorkloadSubscription, one_of, workload
from wanderbus.event import Event
from wanderbus.filters import Filter, parse
from wanderbus.subscription import Subscription

TUPLES: Final = 3
"""Constraints of a filter, besides that on its user."""

WANTED_SHARE: Final = 0.8
"""Probability with which a value of an event satisfies the constraint for which it is drawn."""

DOMAIN: Final = "example.org"

filter_of: Callable[[str], Filter] = lru_cache(maxsize=65_536)(parse)
"""Returns the filter of an expression."""


class PublishedEvent:
    """An event, its number in the run, and what it matches."""

    def __init__(self, number: int, event: Event) -> None:
        self.number = number
        self.event = event
        self.acceptance = 0
        """Place in the order of its channel; 0 where there is none."""
        self._matches: dict[str, bool] = {}

    @cached_property
    def size(self) -> int:
        """Return its bytes in a message."""
        return len(protocol.encode(protocol.Publish(self.number, self.event)))

    def matches(self, subject: str, expression: str) -> bool:
        """Return whether a filter matches it."""
        if subject != self.event.subject:
            return False
        if (found := self._matches.get(expression)) is None:
            found = self._matches[expression] = filter_of(expression).matches(self.event)
        return found


class Population:
    """Users with their subscriptions, the residents of each server, and events."""

    def __init__(self, job: HandoverJob) -> None:
        self._job = job
        self._random = Random(f"population/{job.seed}")
        self._workload: Workload = workload(REFERENCE, TUPLES, job.seed, job.users * job.subscriptions)
        self.users = [tuple(self._of_user(user)) for user in range(job.users)]
        """Subscriptions of each user."""
        self._events = 0

    def residents(self, server: int) -> dict[str, tuple[str, str]]:
        """Return subject and expression of each subscription of the residents of a server, by id."""
        random = Random(f"residents/{self._job.seed}/{server}")
        percent = self._job.target_percent if server % 2 else self._job.source_percent
        found = {}
        for user, own in enumerate(self.users):
            for place in sorted(random.sample(range(len(own)), round(len(own) * percent / 100))):
                left_out = random.choice([None, *range(TUPLES)])
                expression = self._expression(user, place, left_out if random.random() < 0.5 else None)
                found[f"resident-{server}-{user}-{place}"] = own[place].subject, expression
        return found

    def event(self) -> PublishedEvent:
        """Return the next event, drawn for a random subscription of a random user."""
        random = self._random
        user = random.randrange(self._job.users)
        drawn = self._drawn(user, random.randrange(self._job.subscriptions))
        values = {}
        for attribute, asked in zip(self._workload.schemas[drawn.schema], drawn.constraints, strict=True):
            is_wanted = random.random() < WANTED_SHARE
            place = one_of(asked.places, random) if is_wanted else random.randrange(len(attribute.values))
            values[attribute.name] = attribute.values[place]
        self._events += 1
        return PublishedEvent(self._events, Event(f"Schema{drawn.schema}", {**values, "User": user}))

    def _of_user(self, user: int) -> Iterator[Subscription]:
        for place in range(self._job.subscriptions):
            identity = f"user{user}-1-{place + 1}"
            subject, expression = f"Schema{self._drawn(user, place).schema}", self._expression(user, place, None)
            yield Subscription(identity, f"sip:user{user}@{DOMAIN}", "default", subject, expression)

    def _drawn(self, user: int, place: int) -> WorkloadSubscription:
        return self._workload.subscriptions[user * self._job.subscriptions + place]

    def _expression(self, user: int, place: int, left_out: int | None) -> str:
        kept = [each.text for number, each in enumerate(self._drawn(user, place).constraints) if number != left_out]
        return " and ".join([*kept, f"User == {user}"])
