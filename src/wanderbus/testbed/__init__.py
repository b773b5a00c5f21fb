"""Hosts and processes of a run in real time: network namespaces, links, and programs that always end with the run."""

from __future__ import annotations

from wanderbus.errors import ConfigurationError


class CannotRunError(ConfigurationError):
    """A run cannot start or continue here; the message is one line that names what is missing or has failed."""
