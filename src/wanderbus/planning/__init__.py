"""Plans: a placement of subjects onto servers, from the load of each subject (SPEC T-10, decision 0073).

A planner is pure: loads in, placement out. One subject stays on one server, however large its load is.
"""

from __future__ import annotations

from wanderbus.planning.loads import Activity, SubjectInterest, Weights, load_us, loads_of
from wanderbus.planning.placing import Placement, least_max_load, place
from wanderbus.planning.plan_file import Plan, decode_plan, encode_plan, make_plan

__all__ = [
    "Activity",
    "Placement",
    "Plan",
    "SubjectInterest",
    "Weights",
    "decode_plan",
    "encode_plan",
    "least_max_load",
    "load_us",
    "loads_of",
    "make_plan",
    "place",
]
