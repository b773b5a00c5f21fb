"""The four configurations, their common parameters, and the order of measurements (SPEC R-01)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from random import Random
from typing import Final

import msgspec

SOURCE: Final = "SIPMobility and MD-ECI paper, section 5, Figure 8 (the figure is lost; the text ranks its curves)"
RATE_PER_S: Final = 20.0
"""Events published a second."""

EVENTS: Final = 2_000
"""Events of a sample."""

CONSUMERS: Final = (1, 2, 4, 8, 16)
"""Numbers of consumers; those of the paper are lost."""

WIFI_RTT_S: Final = 0.002
"""Round trip between the device and its access point. The paper does not state it."""

RELAY_RTT_S: Final = 0.004
"""Round trip between the network of the broker and a relay that is remote from it. The paper does not state it."""

TURN_EVENTS: Final = 20
"""Events published in one configuration before the next one's turn: few, so that other load of the machine affects all
configurations equally.
"""


class Configuration(IntEnum):
    """Configuration; the number is the paper's rank, 1 the fastest."""

    ECI = 1
    """The original ECI: datagrams without acknowledgement, between addresses."""

    MOBILE = 2
    """Reliable UDP, with SIP mobility; the device is not behind NAT."""

    RELAY_BESIDE = 3
    """The device is behind NAT, and the relay is beside the broker."""

    RELAY_APART = 4
    """The device is behind NAT, and the relay is on a third host."""

    @property
    def behind_nat(self) -> bool:
        """Return whether the device uses its private address."""
        return self >= Configuration.RELAY_BESIDE

    @property
    def about(self) -> str:
        """Return a description for tables and plots."""
        return _ABOUT[self]


_ABOUT: Final = {
    Configuration.ECI: "original ECI",
    Configuration.MOBILE: "MD-ECI, no NAT",
    Configuration.RELAY_BESIDE: "NAT, relay beside broker",
    Configuration.RELAY_APART: "NAT, relay apart",
}


class OverheadExperiment(msgspec.Struct, frozen=True):
    """Parameters that all configurations share."""

    configurations: tuple[Configuration, ...] = tuple(Configuration)
    consumers: tuple[int, ...] = CONSUMERS
    events: int = EVENTS
    rate_per_s: float = RATE_PER_S
    wifi_rtt_s: float = WIFI_RTT_S
    relay_rtt_s: float = RELAY_RTT_S
    encryption: bool = True
    """True if events are encrypted, the default; those of the original ECI never are."""

    @property
    def sample_s(self) -> float:
        """Return the duration of publishing a sample."""
        return self.events / self.rate_per_s


class SampleTurn(msgspec.Struct, frozen=True):
    """Events ``first`` to ``first + count - 1`` of one configuration's sample."""

    configuration: Configuration
    first: int
    count: int


def rounds(experiment: OverheadExperiment, random: Random) -> Iterator[Sequence[SampleTurn]]:
    """Yield rounds, at least four, in which every configuration has a turn in random order; together they make each
    sample.
    """
    count = max(1, min(TURN_EVENTS, experiment.events // 4))
    for first in range(0, experiment.events, count):
        turns = [SampleTurn(each, first, min(count, experiment.events - first)) for each in experiment.configurations]
        random.shuffle(turns)
        yield turns
