"""Publishes: acceptance of an event, and its delivery to sessions (SPEC A-13, B-01; DESIGN 5.2)."""
