"""Checks of the simulated worlds of interest."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.incoming_streams import interests_of
from wanderbus.channels.interest.interest_set import InterestMode, Wanted
from wanderbus.channels.interest.messages import Stream
from wanderbus.channels.interest.proxy_channels import overlap
from wanderbus.event import Event
from wanderbus.filters import Filter
from wanderbus.filters.evaluate import evaluate
from wanderbus.filters.merging import merge_conjunctions
from wanderbus.filters.normal import NormalForm
from wanderbus.filters.normalising import normal_form, to_node
from wanderbus.simulation.domains.interest_hosts import GROUP, RESOLUTION, AccessHost, ResolutionHost

if TYPE_CHECKING:
    from wanderbus.simulation.domains.interest_scenario import InterestServer

Servers = Mapping[str, "InterestServer"]

EVENTS: Final = 6
"""Events of one check of soundness."""


def check_sound(access: Servers, draw: Random, *, advertised: bool) -> tuple[int, list[str]]:
    """Check some events at every access server: its tables let through what others want and it may publish.

    A server that does not know the others' interest since its start publishes nothing yet. A resolution server that has
    forgotten everything must learn of a server again before others that publish something new can know of it.
    """
    checked, problems = 0, []
    for _ in range(EVENTS):
        event = Event(draw.choice(["Flights", "Gates"]), {name: draw.randrange(-1, 12) for name in ("x", "y", "z")})
        wanting = [
            name
            for name, server in access.items()
            if server.is_known_again and _matches(server.effective("interest"), event)
        ]
        for name, server in access.items():
            if not server.running or (advertised and not _matches(server.effective("advertisements"), event)):
                continue
            for origin in wanting:
                route = RESOLUTION, Stream(GROUP, origin)
                if origin == name or not server.machine.tables.is_current(route):
                    continue
                checked += 1
                if not _lets_through(interests_of(server.machine.tables.filters(route)), event):
                    problems.append(f"{name} would not send {event.subject} {dict(event.attributes)} to {origin}")
    return checked, problems


def check_covered_update(
    before: Iterable[Interest], added: Mapping[Hashable, Wanted], versions: int
) -> tuple[int, list[str]]:
    """Check that filters that were covered by what was sent made no new version; return how many were."""
    sent = list(before)
    wanted = [Interest(subject, each) for subject, filter in added.values() for each in _form(filter)]
    if not all(any(one.covers(each) for one in sent) for each in wanted):
        return 0, []
    return len(added), [f"a covered subscription was sent: {wanted!r}"] if versions else []


def check_tables(access: Servers, resolution: ResolutionHost, *, advertised: bool) -> list[str]:
    """Check that every table is what its sender sends, and that advertisements decide who gets what."""
    problems = []
    for name, server in access.items():
        for source in server.machine.sources.values():
            stream = source.outgoing.stream
            at_resolution = interests_of(resolution.proxies.incoming.filters((name, stream)))
            if set(at_resolution) != set(source.interests.sent()):
                problems.append(f"the resolution server has another table of {stream} than {name}")
        for origin in access:
            if origin == name:
                continue
            merged = resolution.proxies.spread(origin)
            offered = _interests(server.filters["advertisements"])
            wanted = {each for each in merged if not advertised or any(overlap(each, one) for one in offered)}
            got = set(interests_of(server.machine.tables.filters((RESOLUTION, Stream(GROUP, origin)))))
            if got != wanted:
                problems.append(f"{name} has another table of {origin} than the resolution server spreads")
    return problems


def check_minimal(
    access: Servers, resolution: ResolutionHost, mode: InterestMode, spread_mode: InterestMode
) -> list[str]:
    """Check that what is sent is minimal in the sense of the mode, and lets nothing through without need."""
    problems = []
    for name, server in access.items():
        local = server.filters["interest"]
        problems += _minimal(name, server.machine.sources["interest"].interests.sent(), local, mode)
        both = mode if spread_mode in ("none", "perfect") else "imperfect"
        spread = resolution.proxies.spread(name)
        problems += _antichain(f"the proxies of {name}", spread)
        problems += _no_leak(f"the proxies of {name}", spread, local, both)
    return problems


def check_nothing_left(access: Servers, resolution: ResolutionHost) -> list[str]:
    """Check that nothing is left when all filters are gone."""
    problems = []
    for route in resolution.proxies.incoming.routes():
        if resolution.proxies.incoming.filters(route):
            problems.append(f"the resolution server still has filters of {route}")
    for name, server in access.items():
        host: AccessHost = server.machine
        if any(host.tables.filters(route) for route in host.tables.routes()):
            problems.append(f"{name} still has filters of others")
    return problems


def _minimal(name: str, sent: list[Interest], local: Mapping[Hashable, Wanted], mode: InterestMode) -> list[str]:
    problems = _antichain(name, sent) + _no_leak(name, sent, local, mode)
    if mode in ("perfect", "imperfect"):
        for subject in {each.subject for each in sent}:
            of_subject = [each.conjunction for each in sent if each.subject == subject]
            if len(merge_conjunctions(of_subject, mode)) < len(of_subject):
                problems.append(f"{name} sends filters that merge")
    return problems


def _antichain(name: str, sent: list[Interest]) -> list[str]:
    covered = [other for one in sent for other in sent if one is not other and one.covers(other)]
    return [f"{name}: a filter that is sent is covered: {each!r}" for each in covered[:1]]


def _no_leak(name: str, sent: list[Interest], local: Mapping[Hashable, Wanted], mode: InterestMode) -> list[str]:
    """Check that without loss of precision exactly what is wanted is let through, otherwise no more than by fusing."""
    wanted = _interests(local)
    if mode in ("none", "perfect"):
        draw = Random(len(sent))
        for _ in range(40):
            event = Event(draw.choice(["Flights", "Gates"]), {each: draw.randrange(-1, 12) for each in "xyz"})
            if _lets_through(sent, event) and not _lets_through(wanted, event):
                return [f"{name} lets {dict(event.attributes)} through, which nobody wants"]
        return []
    fused: list[Interest] = []
    for subject in {each.subject for each in wanted}:
        conjunctions = [each.conjunction for each in wanted if each.subject == subject]
        fused += [Interest(subject, each) for each in merge_conjunctions(conjunctions, "imperfect")]
    leaked = [each for each in sent if not any(one.covers(each) for one in fused)]
    return [f"{name} sends what nobody wants: {each!r}" for each in leaked[:1]]


def _interests(filters: Mapping[Hashable, Wanted]) -> list[Interest]:
    return [Interest(subject, each) for subject, filter in filters.values() for each in _form(filter)]


def _form(wanted: Filter | NormalForm) -> NormalForm:
    return wanted if isinstance(wanted, tuple) else normal_form(wanted)


def _matches(filters: Mapping[Hashable, Wanted], event: Event) -> bool:
    return any(
        subject in (None, event.subject) and isinstance(filter, Filter) and filter.matches(event)
        for subject, filter in filters.values()
    )


def _lets_through(interests: Iterable[Interest], event: Event) -> bool:
    return any(
        each.subject in (None, event.subject) and evaluate(to_node((each.conjunction,)), event) is True
        for each in interests
    )
