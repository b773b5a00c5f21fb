"""Parameters of a run: method, topology, number of domains (SPEC M-02 to M-04, S-03)."""

from __future__ import annotations

import math
from enum import StrEnum
from random import Random
from typing import Final

import msgspec

from wanderbus.evaluation.handover.experiment import PLANE_M
from wanderbus.evaluation.handover.fabric import Delay, plane_delay_s
from wanderbus.evaluation.handover.movement import Place

SOURCE: Final = "Event Dissemination Service for Pervasive Computing, section 2.1"

DOMAINS: Final = (2, 5, 10, 20, 50, 100, 200)
DOMAINS_MAX: Final = 201
"""Domains of a federation: one, and 200 others."""

USERS: Final = 4
USERS_MAX: Final = 1_000
"""Users of a domain."""

TYPES: Final = ("Departure", "Price", "Traffic", "Weather")


class Way(StrEnum):
    """Way of filters between domains."""

    MULTICAST = "multicast"
    """Each domain tells every other one what it wants."""

    RENDEZVOUS = "rendezvous"
    """Each domain tells the rendezvous of a type, which tells those that send it."""

    TREE = "tree"
    """Interest and events go along a spanning tree of each type."""

    FLOODING = "flooding"
    """No interest: each event goes to every other domain."""


class Topology(StrEnum):
    """Places of the domains: in a square, where delays grow with the distance, or with measured delays."""

    RANDOM = "random"
    CLUSTERS = "clusters"
    """Groups of up to ten domains near each other."""

    RING = "ring"
    LINE = "line"
    REGIONS = "regions"
    """Regions of a public cloud, with the round-trip times that were measured between them."""
    GIVEN = "given"
    """The places, or the round-trip times, of a given file."""


class FederationJob(msgspec.Struct, frozen=True):
    """One run. Every tenth domain sends each type, all may receive it; users want events of random types."""

    way: Way
    topology: Topology
    domains: int
    seed: int
    users: int = USERS
    moves: int = 20
    """Moves of users to another domain, one after the other."""
    events: int = 50
    """Events that are published at the end."""
    links: int = 6
    """Links of each domain to the nearest others, where the tree may go; the other ways use links to all."""
    cut_moves: int = 10
    """Moves within each half while the domains are cut in two; after that, the halves find each other again."""
    places: tuple[Place, ...] = ()
    round_trips_ms: tuple[tuple[float, ...], ...] = ()
    """Measured times from each domain to each other one and back; without them, places decide."""


def delay_of(job: FederationJob, random: Random) -> Delay:
    """Return the delays between the domains; of measured ones, those between random domains if not all take part."""
    if not job.round_trips_ms:
        return plane_delay_s(places_of(job, random))
    chosen = random.sample(range(len(job.round_trips_ms)), job.domains)
    return lambda one, other: job.round_trips_ms[chosen[one]][chosen[other]] / 2_000


def places_of(job: FederationJob, random: Random) -> list[Place]:
    """Return the places of the domains in the square."""
    middle = PLANE_M / 2
    match job.topology:
        case Topology.GIVEN:
            return list(job.places[: job.domains])
        case Topology.RING:
            turns = [2 * math.pi * number / job.domains for number in range(job.domains)]
            return [(middle + middle * math.cos(turn), middle + middle * math.sin(turn)) for turn in turns]
        case Topology.LINE:
            return [(PLANE_M * number / max(1, job.domains - 1), middle) for number in range(job.domains)]
        case Topology.CLUSTERS:
            centres = [_anywhere(random) for _ in range(-(-job.domains // 10))]
            return [_near(centres[number // 10], random) for number in range(job.domains)]
        case _:
            return [_anywhere(random) for _ in range(job.domains)]


def _anywhere(random: Random) -> Place:
    return random.uniform(0, PLANE_M), random.uniform(0, PLANE_M)


def _near(centre: Place, random: Random) -> Place:
    spread = PLANE_M / 30
    return centre[0] + random.gauss(0, spread), centre[1] + random.gauss(0, spread)
