"""Matching of events with subscriptions, and what that may cost (SPEC A-03, B-01; DESIGN 7.4)."""
