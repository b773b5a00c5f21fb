"""The file of a plan: JSON that a load balancer can apply (SPEC J-08, T-10; its form is in docs/plans.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from wanderbus.errors import ConfigurationError
from wanderbus.planning.loads import WEIGHTS, Weights
from wanderbus.planning.placing import SLACK, least_max_load, place
from wanderbus.planning.servers import hashed_server, loads_by_server

FORM: Final = "wanderbus-plan-1"


class PlacedSubject(msgspec.Struct, frozen=True, omit_defaults=True):
    """A subject: its server, numbered from 1 on, its load, and the server that it leaves, if it moves."""

    server: int
    load_us: int
    moves_from: int | None = None


class PlannedServer(msgspec.Struct, frozen=True):
    """A server: its number, its expected load, and the number of its subjects."""

    server: int
    load_us: int
    subjects: int


class PlanFigures(msgspec.Struct, frozen=True):
    """Figures of a plan; loads in microseconds of one processor."""

    load_us_max: int
    """Largest load of a server."""
    load_us_least_max: int
    """Load that the most loaded server has in every placement, also in the best one."""
    load_us_max_hashed: int
    """Largest load of a server if a hash placed all subjects."""
    moved_subjects: int = 0
    moved_load_us: int = 0

    @property
    def max_load_vs_hash(self) -> float:
        """Return the largest load, divided by that of a placement by hash; 1 without any load."""
        return self.load_us_max / self.load_us_max_hashed if self.load_us_max_hashed else 1.0


class Plan(msgspec.Struct, frozen=True):
    """A placement of subjects onto servers, as in its file."""

    form: str
    servers: tuple[PlannedServer, ...]
    subjects: dict[str, PlacedSubject]
    figures: PlanFigures
    weights: Weights = WEIGHTS

    def server_of(self, subject: str) -> int:
        """Return the server of a subject, from 1 on; a hash decides for a subject that the plan does not name."""
        found = self.subjects.get(subject)
        return found.server if found else hashed_server(subject, len(self.servers)) + 1


def make_plan(
    loads: Mapping[str, int],
    servers: int,
    present: Callable[[str], int | None] | None = None,
    *,
    unit_of: Callable[[str], str] = str,
    slack: float = SLACK,
    weights: Weights = WEIGHTS,
) -> Plan:
    """Return the plan for subjects with these ``loads``, in microseconds, on so many ``servers``.

    ``present`` returns the present server of a subject, as :meth:`Plan.server_of`, None if that is not planned. All
    subjects of one unit by ``unit_of`` get the same server; each is its own unless that is given. ``slack`` and the
    errors are those of :func:`place`.
    """
    servers_now = {} if present is None else {subject: present(subject) for subject in loads}
    now = {subject: server - 1 for subject, server in servers_now.items() if server is not None}
    units = _units(loads, now, unit_of)
    placed = place(units.loads, servers, units.present if present else None, slack=slack)
    server_of = {subject: placed.server_of[unit_of(subject)] for subject in sorted(loads)}
    subjects = {}
    for subject, server in server_of.items():
        origin = now.get(subject, server)
        subjects[subject] = PlacedSubject(server + 1, loads[subject], origin + 1 if origin != server else None)
    moved = [each.load_us for each in subjects.values() if each.moves_from is not None]
    hashed = {subject: hashed_server(subject, servers) for subject in loads}
    counts = [0] * servers
    for server in server_of.values():
        counts[server] += 1
    return Plan(
        FORM,
        tuple(PlannedServer(number + 1, load, counts[number]) for number, load in enumerate(placed.loads)),
        subjects,
        PlanFigures(
            load_us_max=placed.max_load,
            load_us_least_max=least_max_load(units.loads.values(), servers),
            load_us_max_hashed=max(loads_by_server(servers, loads, hashed)),
            moved_subjects=len(moved),
            moved_load_us=sum(moved),
        ),
        weights,
    )


class _Units(NamedTuple):
    """Loads and present servers of units, which are placed whole."""

    loads: dict[str, int]
    present: dict[str, int]


def _units(loads: Mapping[str, int], now: Mapping[str, int], unit_of: Callable[[str], str]) -> _Units:
    """Return the units of subjects; one whose subjects are on several servers is where most of its load is."""
    units: dict[str, int] = {}
    shares: dict[str, dict[int, int]] = {}
    for subject, load in loads.items():
        unit = unit_of(subject)
        units[unit] = units.get(unit, 0) + load
        if subject in now:
            by_server = shares.setdefault(unit, {})
            by_server[now[subject]] = by_server.get(now[subject], 0) + load
    present = {unit: min(shares[unit], key=lambda each: (-shares[unit][each], each)) for unit in shares}
    return _Units(units, present)


def encode_plan(plan: Plan) -> bytes:
    """Return the file of a plan."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"


def decode_plan(data: bytes, name: str) -> Plan:
    """Return the plan of a file; ``ConfigurationError`` names the file, ``name``, and the fault."""
    try:
        plan = msgspec.json.decode(data, type=Plan)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{name} is not a plan: {error}; make one with 'wanderbus plan'") from None
    if plan.form != FORM:
        raise ConfigurationError(f"{name} is not a plan: its form is {plan.form!r} (expected {FORM!r})")
    if [each.server for each in plan.servers] != list(range(1, len(plan.servers) + 1)) or not plan.servers:
        raise ConfigurationError(f"{name} is not a plan: its servers are not numbered from 1 on")
    for subject, placed in plan.subjects.items():
        if not 1 <= placed.server <= len(plan.servers):
            raise ConfigurationError(f"{name} is not a plan: it places {subject!r} on server {placed.server}")
        if placed.load_us < 0:
            raise ConfigurationError(f"{name} is not a plan: the load of {subject!r} is {placed.load_us}")
    return plan
