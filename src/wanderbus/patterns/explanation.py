"""Explanation of a pattern: its steps, its automaton, its bounds, and the data that it keeps in memory."""

from __future__ import annotations

from typing import Any

from wanderbus.patterns.automaton import Joint, Stage
from wanderbus.patterns.pattern import Pattern
from wanderbus.patterns.tree import Step
from wanderbus.subscription import EVERY_SUBJECT

_MEANINGS = {
    "first": "the first match of each first event",
    "every": "every match",
    "past": "matches that do not overlap, each the first one to be complete",
}
_UNITS = (("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000))


def explain(pattern: Pattern) -> dict[str, Any]:
    """Return the explanation as values that JSON can represent."""
    declared = pattern.declaration
    steps = declared.steps
    source = declared.time_source if declared.time_attribute is None else f"event, {declared.time_attribute}"
    return {
        "name": pattern.name,
        "keys": list(pattern.keys),
        "within_us": pattern.within_us,
        "time": source,
        "lateness_us": pattern.lateness_us,
        "detects": _MEANINGS[declared.selection],
        "subject": declared.subject,
        "emits": [name for name, _ in declared.emitted],
        "steps": [_step(step) for step in steps],
        "stages": [_stage(pattern, stage) for stage in pattern.automaton.stages],
        "memory": _memory(pattern),
    }


def lines_of(pattern: Pattern) -> list[str]:
    """Return the explanation as lines for people."""
    found = explain(pattern)
    keys = ", ".join(found["keys"]) or "none: all events are one sequence"
    lines = [f"pattern {found['name']}, key: {keys}", "steps:"]
    for step in found["steps"]:
        absent = "not " if step["is_negated"] else ""
        times = "" if step["times"] == "1" else f" {step['times']} times"
        where = ", with a condition on earlier events" if step["has_condition"] else ""
        subject = "every subject" if step["subject"] == EVERY_SUBJECT else step["subject"]
        lines.append(f"  {absent}{step['name']}{times}: {subject}, {step['filter']}{where}")
    lines.append("automaton:")
    for stage in found["stages"]:
        lines += [f"  {'start, ' if stage['is_start'] else ''}{stage['name']}"]
        lines += [f"    {each}" for each in stage["then"]]
    lines.append(f"detects: {found['detects']}, within {duration(found['within_us'])}, by {found['time']} time")
    lines.append(f"emits: {found['subject']}" + "".join(f", {name}" for name in found["emits"]))
    lines.append("in memory, for each key:")
    return lines + [f"  {line}" for line in found["memory"]]


def duration(time_us: int) -> str:
    """Return a duration as text: ``1 hour 30 minutes``."""
    parts = []
    for unit, unit_us in _UNITS:
        count, time_us = divmod(time_us, unit_us)
        if count:
            parts.append(f"{count} {unit}" + ("" if count == 1 else "s"))
    if time_us:
        parts.append(f"{time_us / 1_000:g} milliseconds")
    return " ".join(parts) or "no time"


def _step(step: Step) -> dict[str, Any]:
    return {
        "name": step.name,
        "subject": step.leaf.subject,
        "language": step.leaf.filter.language,
        "filter": str(step.leaf.filter),
        "is_negated": step.is_negated,
        "times": _times(step),
        "has_condition": step.where is not None,
    }


def _times(step: Step) -> str:
    if step.most is None:
        return f"{step.least} or more"
    return str(step.least) if step.least == step.most else f"{step.least} to {step.most}"


def _stage(pattern: Pattern, stage: Stage) -> dict[str, Any]:
    steps = pattern.declaration.steps
    stages = pattern.automaton.stages
    then = []
    if stage.most != 1:
        then.append(f"{steps[stage.step].name} again, without one left out")
    for edge in stage.edges:
        name = _name(pattern, stages[edge.target])
        then.append(f"then {'next ' if edge.joint.is_next else ''}{name}{_absent(pattern, edge.joint)}")
    then += [
        f"end at {duration(pattern.within_us)} after the first event{_absent(pattern, joint)}"
        if joint.absent
        else "end at once"
        for joint in stage.ends
    ]
    is_start = stage.place in pattern.automaton.starts
    return {"name": _name(pattern, stage), "is_start": is_start, "then": then}


def _name(pattern: Pattern, stage: Stage) -> str:
    """Return the name of a stage: that of its step, with a number if the step has several."""
    same = [each.place for each in pattern.automaton.stages if each.step == stage.step]
    name = pattern.declaration.steps[stage.step].name
    return name if len(same) == 1 else f"{name}#{same.index(stage.place) + 1}"


def _absent(pattern: Pattern, joint: Joint) -> str:
    names = [pattern.declaration.steps[step].name for step in joint.absent]
    return f", if no {' and no '.join(names)} comes before" if names else ""


def _memory(pattern: Pattern) -> list[str]:
    """Return the data that a key keeps, and for how long."""
    bounds = pattern.bounds
    kept = ", ".join(pattern.attributes) or "no attributes"
    within = duration(pattern.within_us)
    partial = {
        True: "each with a partial match for every choice of events",
        False: "each with one partial match for a place in the automaton and the events that conditions use",
    }[pattern.declaration.selection == "every"]
    return [
        f"first events of the last {within}, {partial}; at most {bounds.partial_matches_max} partial matches",
        f"events of partial matches, at most {bounds.events_per_match_max} each: time, offset, id and {kept}",
        f"events at or above the watermark, which is {duration(pattern.lateness_us)} behind the latest event; "
        f"at most {bounds.events_waiting_max}",
        "beyond a bound nothing is added, and what is refused is counted",
    ]
