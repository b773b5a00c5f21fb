"""Routes the reports of the SIP stack to the responsible module (the SIPListener of the paper, SPEC C-10).

The stack has matched messages to transactions and dialogs before: a report is the result of a REGISTER or INVITE with
its responses, and one table names its module.
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
    """Modules that receive reports."""

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
"""The module for each report of the stack."""


class Concerned(Protocol):
    """A manager, from the listener's view."""

    def report(self, output: Output) -> None:
        """Handle one report."""
        ...


class SIPMessageListener:
    """Attached to the stack through the helper; passes each report on by :data:`DISPATCH`, and discards others."""

    def __init__(self, sessions: Concerned, registration: Concerned) -> None:
        self._modules = {Module.SESSIONS: sessions, Module.REGISTRATION: registration}

    def report(self, output: Output) -> None:
        """Pass ``output`` to its module."""
        module = DISPATCH.get(type(output))
        if module is not None:
            self._modules[module].report(output)
