"""Which subscriptions an event matches (SPEC A-03, B-01)."""

from __future__ import annotations

from wanderbus.matching.scan import Index

__all__ = ["Index"]
