"""Queues of sessions, their limits and policies (SPEC G-15 to G-23; DESIGN 5.4)."""
