"""Attacker of reliable UDP: off the path, or on it without the keys.

Off the path it only knows the addresses. On the path it sees every datagram and sends variants: altered, cut short,
longer, of another kind, under a later number, repeated after a while, from elsewhere, or before the genuine one. In
plain mode everybody who reads a datagram can forge the next, so there the attacker only repeats and resets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wanderbus.machine import Address
from wanderbus.simulation.network import Network
from wanderbus.simulation.rudp.wire import HEADER_BYTES, KIND_OFFSET, PLAIN, RESET, SEALED
from wanderbus.simulation.world import World

ADDRESS: Final[Address] = ("203.0.113.66", 6_666)
LATER_S_MAX: Final = 15.0
_NUMBER_OFFSET: Final = 20


class Attacker:
    """``chance``: of making a variant of an observed datagram. ``noise_per_s``: rate of datagrams sent blindly."""

    def __init__(self, world: World, network: Network, chance: float, noise_per_s: float) -> None:
        self.injected = 0
        self.active = True
        self._world = world
        self._network = network
        self._chance = chance
        self._noise_per_s = noise_per_s

    def begin(self, victims: Callable[[], list[Address]]) -> None:
        """Send noise to the current addresses of ``victims`` as long as this attacker is active."""
        draw = self._world.random

        def noise() -> None:
            if not self.active:
                return
            kind = draw.choice([SEALED, RESET, PLAIN, 4, 5, draw.randrange(256)])
            data = bytearray(draw.randbytes(draw.choice([draw.randint(0, 80), 33, draw.randint(28, 1300)])))
            data[KIND_OFFSET : KIND_OFFSET + 1] = bytes([kind])
            addresses = victims()
            source = draw.choice([ADDRESS, *addresses])
            self._inject(source, draw.choice(addresses), bytes(data), 0.0)
            self._world.after(draw.expovariate(self._noise_per_s), noise)

        if self._noise_per_s:
            self._world.after(draw.expovariate(self._noise_per_s), noise)

    def sees(self, source: Address, destination: Address, data: bytes) -> None:
        """Observe a datagram that is being sent."""
        draw = self._world.random
        if not self.active or draw.random() >= self._chance or len(data) <= HEADER_BYTES:
            return
        sealed = data[KIND_OFFSET] == SEALED
        repeat = draw.random() < (0.3 if sealed else 0.8)
        made = data if repeat else self._reset(data) if not sealed else self._forged(data)
        claimed = draw.choice([source, ADDRESS])
        delay_s = draw.choice([0.0, 0.001, draw.uniform(0.0, LATER_S_MAX)])
        back = draw.random() < 0.1
        self._inject(claimed, source if back else destination, made, delay_s)

    def _inject(self, source: Address, destination: Address, data: bytes, delay_s: float) -> None:
        self.injected += 1
        self._network.carry(source, destination, data, delay_s)

    def _reset(self, data: bytes) -> bytes:
        return data[:KIND_OFFSET] + bytes([RESET]) + self._world.random.randbytes(16)

    def _forged(self, data: bytes) -> bytes:
        """Return a forgery of a sealed packet, which its receiver must not accept."""
        draw = self._world.random
        match draw.randrange(7):
            case 0:
                return self._reset(data)
            case 1:
                return data[: draw.randint(0, len(data) - 1)]
            case 2:
                return data + draw.randbytes(draw.randint(1, 40))
            case 3:
                kind = draw.choice([kind for kind in range(8) if kind != SEALED])
                return data[:KIND_OFFSET] + bytes([kind]) + data[KIND_OFFSET + 1 :]
            case 4:
                number = int.from_bytes(data[_NUMBER_OFFSET:HEADER_BYTES], "big") + draw.choice([1, 5, 2**20])
                return data[:_NUMBER_OFFSET] + number.to_bytes(8, "big") + data[HEADER_BYTES:]
            case 5:
                frame = b"\x01" + draw.randrange(50).to_bytes(8, "big") + b"\x00\x05false"
                return data[:KIND_OFFSET] + bytes([PLAIN]) + data[KIND_OFFSET + 1 : HEADER_BYTES] + frame
            case _:
                changed = bytearray(data)
                changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
                return bytes(changed)
