"""Further parts of the access server, with what they take and emit; their names are the scopes of their timers."""

from __future__ import annotations

from typing import Final

from wanderbus.access.messages import BaselineInput, BaselineOutput
from wanderbus.composition import Part
from wanderbus.mobility.messages import UserAgentInput, UserAgentOutput
from wanderbus.transport import TransportInput, TransportOutput

USER_AGENT: Final = Part[UserAgentInput, UserAgentOutput]("sip")
TRANSPORTS: Final = Part[TransportInput, TransportOutput]("data", has_scope=False)
BASELINE: Final = Part[BaselineInput, BaselineOutput]("eci")
