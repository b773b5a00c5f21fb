"""Audit of the ways of sessions between domains: where the plan has sent them, and where the logs have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from demo.log_audit import LogAudit, Walk, between_domains, domain_of, summary
from demo.plan import Action, Step
from demo.users import User


def strayed(users: Iterable[User], steps: Sequence[Step], walks: Sequence[Walk]) -> list[str]:
    """Return a line for each user whose session did not go to the domains to which the steps have sent it, in turn."""
    crossings = between_domains(walks)
    faults = []
    for user in users:
        planned = [step.to for step in steps if step.name == user.name and _sends_session(step)]
        found = [domain_of(walk["target"]) for walk in crossings if walk["user"] == user.uri]
        if found != planned:
            faults.append(f"the session of {user.name} went {_way(found)}, and should have gone {_way(planned)}")
    return faults


def handovers(walks: Sequence[Walk]) -> dict[str, Any]:
    """Return the summary of all walks, and how many of them were between domains."""
    return {**summary(walks), "between_domains": len(between_domains(walks))}


def drawn(found: LogAudit, hosts: Mapping[str, str], users: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """Return what the report draws of the walks of ``users``, with the host of each server; no server drains."""
    homes = [{"user": user, "server": hosts[found.homes[user]]} for user in users if user in found.homes]
    walks = [{**walk, **{end: hosts[walk[end]] for end in ("source", "target")}} for walk in found.walks]
    return {"homes": homes, "walks": walks, "drains": [], "group_moves": []}


def _sends_session(step: Step) -> bool:
    """Return whether a session moves at a step: by order of its traveller, or because the traveller calls there."""
    return bool(step.to) and step.action in (Action.TAKE_SESSION, Action.SWITCH_ON)


def _way(domains: Sequence[str]) -> str:
    return f"to {', '.join(domains)}" if domains else "nowhere"
