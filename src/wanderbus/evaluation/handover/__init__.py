"""Handover of sessions, and of channel groups, by several kinds of routing on one workload (SPEC R-07, S-07)."""
