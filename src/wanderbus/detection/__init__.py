"""Failure detectors of data channels: they decide from observations whether a peer is gone (SPEC F-06, F-07, G-26).

A transport asks the detector of a connection when the connection opens, at the time that the detector named, and when
an answer is overdue; it never asks for a single packet. The detector is pure: it sees the time only in its argument. It
may keep state between the questions about its connection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Literal, Protocol, get_args

import msgspec

from wanderbus.limits import REASON_CHARACTERS_MAX
from wanderbus.machine import Output

ASK_PAUSE_S_MIN: Final = 0.01
"""Least pause between two questions, so that a detector cannot keep its process busy."""

Judgement = Literal["alive", "probe", "gone"]
"""``probe`` sends a PING now, ``gone`` fails the connection."""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """Observations of one connection; times are monotonic seconds.

    :param protocol: transport of the connection
    :param now: time of the question
    :param arrived_at: time of the last packet or frame of the peer; None before the first
    :param waiting_since: time since when the peer owes an answer; None if it owes none. It begins again when the path
        changes, and over TCP with each progress
    :param retries: timeouts in a row of the packet that was sent most often; always 0 over TCP, which retransmits below
    :param probes: probes that the detector requested since the last arrival
    :param probed_at: time of the last of these probes; None if there is none
    :param is_refused: no TCP connection could be opened, and something waits; always False over reliable UDP
    :param round_trip_s: smoothed round trip; None if unknown
    """

    protocol: Literal["UDP", "TCP"]
    now: float
    arrived_at: float | None = None
    waiting_since: float | None = None
    retries: int = 0
    probes: int = 0
    probed_at: float | None = None
    is_refused: bool = False
    round_trip_s: float | None = None


class Verdict(msgspec.Struct, frozen=True):
    """Decision of a detector, and when it wants to be asked again.

    :param ask_at: time of the next question, after the time of this one; None for only when an answer is overdue
    :param overdue_s: time without an answer after which one is overdue, since it was due or since the last question;
        None for never. Reliable UDP notices it at the first timeout of a packet, which may be later
    :param at_retries: ask also after each timeout of a packet; only reliable UDP has them
    """

    judgement: Judgement = "alive"
    ask_at: float | None = None
    overdue_s: float | None = None
    at_retries: bool = False


class FailureDetector(Protocol):
    """Detector of one connection."""

    def judge(self, observed: Observed) -> Verdict:
        """Decide about the peer; called again and again until the connection fails or is closed."""
        ...


MakeDetector = Callable[[], FailureDetector]
"""Function that returns a new detector for each connection."""


_ALIVE = Verdict(at_retries=True)
_GONE = Verdict("gone", at_retries=True)


class RetriesDetector:
    """Default over reliable UDP: the peer is gone once a packet has timed out more than ``retries_max`` times."""

    def __init__(self, retries_max: int) -> None:
        self._retries_max = retries_max

    def judge(self, observed: Observed) -> Verdict:
        """Decide by the retries alone, which reliable UDP paces."""
        return _GONE if observed.retries > self._retries_max else _ALIVE


class TimeoutDetector:
    """Default over TCP: the peer is gone after ``timeout_s`` without an answer, or if nothing connects to it."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def judge(self, observed: Observed) -> Verdict:
        """Decide by the time of waiting."""
        since = observed.waiting_since
        if observed.is_refused:
            return _GONE
        if since is None:
            return Verdict(overdue_s=self._timeout_s)
        if observed.now >= since + self._timeout_s:
            return _GONE
        return Verdict(ask_at=since + self._timeout_s, overdue_s=self._timeout_s)


class DetectorFailed(Output, frozen=True):
    """Detectors of this endpoint have failed ``count`` times; ``reason`` is the last failure, as one line."""

    count: int
    reason: str


Report = Callable[[DetectorFailed], object]
"""Function that takes the report of a failure, such as ``outputs.append``."""


class Detectors:
    """Detectors of all connections of one endpoint.

    A detector that raises, or returns an invalid verdict, decides no more: the default replaces it for its connection.

    :param default: detector without state, which all connections share
    :param make: returns an application's detector for each connection; None for the default
    """

    def __init__(self, default: FailureDetector, make: MakeDetector | None = None) -> None:
        self.default = default
        self.failed = 0
        """Number of failures of an application's detectors."""
        self._make = make

    def new(self, report: Report) -> FailureDetector:
        """Return a detector for a new connection; report a failure to make one."""
        if self._make is None:
            return self.default
        try:
            return self._make()
        except Exception as error:
            return self.replacement(error, report)

    def replacement(self, error: Exception, report: Report) -> FailureDetector:
        """Return the default after a failure; report the first one, and again when their number has doubled."""
        self.failed += 1
        if self.failed.bit_count() == 1:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            report(DetectorFailed(self.failed, reason[:REASON_CHARACTERS_MAX]))
        return self.default


class Detection:
    """Questions to the detector of one connection.

    The owner asks at :attr:`ask_at`, and once an answer is overdue for :attr:`overdue_s`.
    """

    __slots__ = (
        "_arrived_at",
        "_detector",
        "_detectors",
        "_probed_at",
        "_probes",
        "ask_at",
        "asked_at",
        "at_retries",
        "overdue_s",
    )

    def __init__(self, detectors: Detectors, report: Report) -> None:
        self.ask_at: float | None = None
        """Time of the next question that the detector named."""
        self.asked_at = -math.inf
        """Time of the last question."""
        self.at_retries = False
        """See :attr:`Verdict.at_retries`."""
        self.overdue_s: float | None = None
        """See :attr:`Verdict.overdue_s`."""
        self._detectors = detectors
        self._detector = detectors.new(report)
        self._arrived_at: float | None = None
        self._probes = 0
        self._probed_at: float | None = None

    def overdue_at(self, waiting_since: float) -> float | None:
        """Return when the answer that is due since ``waiting_since`` is overdue; None for never."""
        return None if self.overdue_s is None else max(waiting_since, self.asked_at) + self.overdue_s

    def waits(self, waiting_since: float | None) -> None:
        """Ask by the time when the answer that is due since ``waiting_since`` is overdue; None is not due."""
        overdue_at = None if waiting_since is None else self.overdue_at(waiting_since)
        if overdue_at is not None and (self.ask_at is None or overdue_at < self.ask_at):
            self.ask_at = overdue_at

    def judge(self, observed: Observed, report: Report) -> Judgement:
        """Return the detector's decision about ``observed``, to which the probes are added here."""
        if observed.arrived_at != self._arrived_at:
            self._arrived_at, self._probes, self._probed_at = observed.arrived_at, 0, None
        now = self.asked_at = observed.now
        observed = msgspec.structs.replace(observed, probes=self._probes, probed_at=self._probed_at)
        try:
            verdict = _checked(self._detector.judge(observed), now)
        except Exception as error:
            self._detector = self._detectors.replacement(error, report)
            verdict = self._detector.judge(observed)
        self.ask_at = None if verdict.ask_at is None else max(verdict.ask_at, now + ASK_PAUSE_S_MIN)
        self.overdue_s = None if verdict.overdue_s is None else max(verdict.overdue_s, ASK_PAUSE_S_MIN)
        self.at_retries = bool(verdict.at_retries)
        if verdict.judgement == "probe":
            self._probes, self._probed_at = self._probes + 1, now
        return verdict.judgement


def _checked(verdict: object, now: float) -> Verdict:
    if not isinstance(verdict, Verdict):
        raise TypeError(f"the detector returned {type(verdict).__name__}; return a Verdict")
    if verdict.judgement not in get_args(Judgement):
        raise ValueError(f"judgement is {verdict.judgement!r}; it must be alive, probe or gone")
    # The comparisons are also false for NaN.
    if verdict.ask_at is not None and not now < verdict.ask_at < math.inf:
        raise ValueError(f"ask_at is {verdict.ask_at}; it must be after now, which is {now}")
    if verdict.overdue_s is not None and not 0 < verdict.overdue_s < math.inf:
        raise ValueError(f"overdue_s is {verdict.overdue_s}; it must be above 0")
    return verdict
