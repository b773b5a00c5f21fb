"""The SIP server of one domain: registrar, location and proxy over one transaction layer (SPEC C-20, D-02, D-07).

REGISTER goes to the registrar, everything else to the proxy. This file only joins the parts: it feeds each what the
transaction layer reports, and the layer what they ask for, until all is quiet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from wanderbus.machine import (
    Address,
    CancelTimer,
    Input,
    Output,
    RandomSource,
    SetTimer,
    TimerFired,
    scoped,
)
from wanderbus.sip.digest import Authenticator
from wanderbus.sip.location import Domain, LocationService
from wanderbus.sip.proxy import Command, Proxy, Report
from wanderbus.sip.registrar import ExpiryPolicy, Registrar
from wanderbus.sip.transaction_signals import (
    AckReceived,
    CancelReceived,
    RequestReceived,
    Respond,
    ResponseReceived,
    TransactionTimedOut,
)
from wanderbus.sip.transactions import TransactionLayer

SOCKET: Final = "sip"
"""Name of the only socket this machine uses."""

_REPORTS = (RequestReceived, AckReceived, CancelReceived, ResponseReceived, TransactionTimedOut)


class SIPServer:
    """Registrar and proxy for ``domain``, listening on ``address``.

    ``passwords`` maps a user name to the password or None; ``key`` is a secret for digest nonces; the three times
    bound what a registration may last. Reports :class:`wanderbus.sip.location.BindingChanged`.
    """

    def __init__(
        self,
        domain: str,
        address: Address,
        passwords: Callable[[str], str | None],
        random: RandomSource,
        key: bytes,
        *,
        expires_min_s: int = 5,
        expires_max_s: int = 3600,
        expires_default_s: int = 300,
    ) -> None:
        served = Domain(domain.lower(), address)
        policy = ExpiryPolicy(expires_min_s, expires_max_s, expires_default_s)
        self.location = LocationService()
        self._registrar = Registrar(served, self.location, Authenticator(domain, passwords, key), random, policy)
        self._proxy = Proxy(served, self.location, lambda user: passwords(user) is not None, random)
        self._layer = TransactionLayer(random, socket=SOCKET)
        self._layer.local = address

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Take datagrams and timers at monotonic second ``now``; return what to send, timers and reports."""
        outputs: list[Output] = []
        for given in inputs:
            match given:
                case TimerFired(key=("registrar", str(aor))):
                    outputs += scoped("registrar", self._registrar.expire(aor, now))
                case TimerFired(key=("proxy", key)):
                    outputs += self._run(self._proxy.step([TimerFired(key)], now), now)
                case TimerFired(key=("transactions", key)):
                    outputs += self._run([TimerFired(key)], now)
                case TimerFired():
                    pass
                case _:
                    outputs += self._run([given], now)
        return outputs

    def _run(self, work: Sequence[Input | Command], now: float) -> list[Output]:
        """Carry ``work`` back and forth between the layer and its users until none is left."""
        outputs: list[Output] = []
        pending = deque(work)
        while pending:
            task = pending.popleft()
            if isinstance(task, SetTimer | CancelTimer):
                outputs += scoped("proxy", [task])
                continue
            for result in self._layer.step([task], now):
                if isinstance(result, _REPORTS):
                    commands, reports = self._handled(result, now)
                    pending += commands
                    outputs += reports
                else:
                    outputs += scoped("transactions", [result])
        return outputs

    def _handled(self, report: Report, now: float) -> tuple[Sequence[Command], list[Output]]:
        """Let the registrar or the proxy handle ``report``."""
        if isinstance(report, RequestReceived) and report.request.method == "REGISTER":
            response, written = self._registrar.register(report.request, now)
            return [Respond(report.transaction, response)], scoped("registrar", written)
        return self._proxy.step([report], now), []
