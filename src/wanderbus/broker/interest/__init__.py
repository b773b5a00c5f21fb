"""Matching of events with subscriptions, and the bounds on its cost (SPEC A-03, B-01; DESIGN 7.4)."""
