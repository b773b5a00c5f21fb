"""Routes what the SIP stack reports to the module that it concerns (the SIPListener of the paper, SPEC C-10).

The stack has matched messages to transactions and dialogs by then: a report says what a REGISTER or an INVITE with
its answers came to, and one table says whose it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, Protocol

from wanderbus.machine import Output
from wanderbus.mobility.messages import (
    OfferWanted,
    Registered,
    RegistrationFailed,
    SessionEstablished,
    SessionFailed,
    SessionOffered,
    SessionRemoved,
    SessionStateChanged,
    Unregistered,
    UpdateFailed,
)


class Module(Enum):
    """Who can be concerned."""

    SESSIONS = "SessionManager"
    REGISTRATION = "RegistrationManager"


DISPATCH: Final[Mapping[type[Output], Module]] = MappingProxyType(
    {
        Registered: Module.REGISTRATION,
        RegistrationFailed: Module.REGISTRATION,
        Unregistered: Module.REGISTRATION,
        SessionOffered: Module.SESSIONS,
        OfferWanted: Module.SESSIONS,
        SessionEstablished: Module.SESSIONS,
        SessionStateChanged: Module.SESSIONS,
        SessionFailed: Module.SESSIONS,
        UpdateFailed: Module.SESSIONS,
        SessionRemoved: Module.SESSIONS,
    }
)
"""Of each report of the stack whose it is."""


class Concerned(Protocol):
    """A manager, as the listener sees it."""

    def report(self, output: Output) -> None:
        """Take one report."""
        ...


class SIPMessageListener:
    """Attached to the stack through the helper; hands each report on by :data:`DISPATCH`, and drops others."""

    def __init__(self, sessions: Concerned, registration: Concerned) -> None:
        self._modules = {Module.SESSIONS: sessions, Module.REGISTRATION: registration}

    def report(self, output: Output) -> None:
        """Hand ``output`` to the module it concerns."""
        module = DISPATCH.get(type(output))
        if module is not None:
            self._modules[module].report(output)
