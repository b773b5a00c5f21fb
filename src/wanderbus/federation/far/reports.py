"""Inputs and outputs of :class:`~wanderbus.federation.far.links.FarLinks`; servers have names ``DOMAIN/SERVER``."""

from __future__ import annotations

from wanderbus.federation.circuit_messages import FromFar, ServersAsked, ServersTold, ToFar
from wanderbus.machine import SetTimer, TimerFired
from wanderbus.peers.far_servers import FarReport, FarRequest

FarLinksInput = FarRequest | FromFar | ServersTold | TimerFired
"""Inputs: requests, messages of other domains, and timers."""

FarLinksOutput = FarReport | ToFar | ServersAsked | SetTimer
"""Outputs: reports, and messages for gateways."""
