"""The script of a consumer that moves: an imposed outage is measured where the paper's reader would (SPEC R-02)."""

from __future__ import annotations

import pytest

from wanderbus.evaluation.plan import AddressChange
from wanderbus.evaluation.roaming import HEALING_S, Measured, roam

SPACING_S = 0.05


class Clockwork:
    """A device in a world with an event every 50 ms, and with a healing time that the test sets."""

    def __init__(self, healing_s: float) -> None:
        self.now = 0.0
        self.received_s = 0.0
        self.healing_s = healing_s
        self.away = False
        self.back_s = 0.0
        self.deeds: list[tuple[str, float]] = []

    def leave(self) -> None:
        self.away = True
        self.deeds.append(("leave", self.now))

    def arrive(self) -> None:
        self.away = False
        self.back_s = self.now + self.healing_s
        self.deeds.append(("arrive", self.now))

    def event(self) -> float:
        """Advance the clock to the next event that is received."""
        number = int(self.now / SPACING_S + 1e-9) + 1
        self.received_s = self.now = max(number * SPACING_S, self.back_s)
        return self.now


def play(device: Clockwork, changes: list[AddressChange]) -> list[Measured]:
    done: list[Measured] = []
    script = roam(changes, 0.0, SPACING_S, device, done)
    wanted = next(script)
    try:
        while True:
            if wanted is None:
                assert not device.away
                wanted = script.send(device.event())
            elif callable(wanted):
                wanted()
                wanted = script.send(device.now)
            else:
                while not device.away and device.now + SPACING_S < wanted:
                    device.event()
                device.now = max(device.now, wanted)
                wanted = script.send(device.now)
    except StopIteration:
        return done


def test_from_the_last_event_before_to_the_first_after() -> None:
    device = Clockwork(healing_s=HEALING_S)
    measured = play(device, [AddressChange(1.0, 9.9), AddressChange(20.0, 9.9)])
    assert [one.outage_s for one in measured] == pytest.approx([9.9, 9.9])


def test_healing_as_it_was_the_last_time_is_taken_off() -> None:
    device = Clockwork(healing_s=0.5)
    measured = play(device, [AddressChange(1.0, 9.9), AddressChange(20.0, 9.9)])
    assert [one.outage_s for one in measured] == pytest.approx([9.9 + 0.5 - HEALING_S, 9.9])
    assert [one.healing_s for one in measured] == pytest.approx([0.5, 0.5])


def test_the_address_goes_midway_between_events() -> None:
    device = Clockwork(healing_s=HEALING_S)
    play(device, [AddressChange(1.01, 9.9)])
    deed, at_s = device.deeds[0]
    assert deed == "leave"
    assert at_s == pytest.approx(1.05 + SPACING_S / 2)


def test_ours_has_another_address_at_once() -> None:
    device = Clockwork(healing_s=0.2)
    (measured,) = play(device, [AddressChange(1.0, 0.0)])
    assert [deed for deed, _ in device.deeds] == ["arrive"]
    assert measured.outage_s == pytest.approx(SPACING_S / 2 + 0.2)
