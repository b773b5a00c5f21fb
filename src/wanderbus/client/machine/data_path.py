"""Data channel of an agent: its transports, and the choice of its path (SPEC F-01, I-08)."""

from __future__ import annotations

import msgspec

from wanderbus.client.machine.data_path_kind import allowed_paths
from wanderbus.client.machine.identity import parties_of
from wanderbus.client.machine.messages import AgentProperties
from wanderbus.client.machine.path_choice import PathChoice
from wanderbus.datachannel import DataChannel, Protocol, Transports, protocol_over
from wanderbus.machine import Address, Input, RandomSource
from wanderbus.parameters.transports import RudpConfig, TcpConfig


class DataPath:
    """The channel, the transports that carry it, and the choice between them."""

    def __init__(
        self,
        properties: AgentProperties,
        random: RandomSource,
        host: str,
        *,
        rudp: RudpConfig | None,
        tcp: TcpConfig | None,
    ) -> None:
        self.transports = Transports(
            random,
            rudp_config=msgspec.structs.replace(
                rudp or RudpConfig(), keepalive_s=properties.keepalive_s, ack_delay_s=0.0
            ),
            tcp_config=msgspec.structs.replace(tcp or TcpConfig(), keepalive_s=properties.keepalive_s),
            reset_key=random.token(32),
        )
        self.choice = PathChoice(allowed_paths(properties.data_transport, properties.data_ways), host)
        self._encryption = properties.encryption
        self.channel = DataChannel(
            self.transports, parties_of(properties, ""), encryption=properties.encryption, protocol=self._protocol
        )
        self._offered_at: float | None = None
        """Time at which the agent's open offer was sent, None if there is none."""

    @property
    def sends_to(self) -> Address | None:
        """Return the destination address of data, from the broker's description; None until it is negotiated."""
        remote = self.channel.remote
        return None if remote is None else remote.address

    def prepare_offer(self, now: float) -> list[Input]:
        """Prepare the channel for an offer by the chosen path, which is sent now; return inputs of the transports."""
        self._offered_at = now
        return self.channel.use(self._protocol, relayed=self.choice.relayed)

    def begin_trial(self, now: float) -> float | None:
        """Start to wait for an acknowledgement on the negotiated path; return the deadline.

        Return None if the path leads to an address that acknowledged nothing before.
        """
        assert self.sends_to is not None, "a trial begins with an agreement"
        round_trip_s = 0.0 if self._offered_at is None else now - self._offered_at
        self._offered_at = None
        return self.choice.agreed(self.sends_to, round_trip_s, now)

    def is_reached(self) -> bool:
        """Return whether the broker acknowledged something on the current path."""
        return self.transports.reached(self.channel.local)

    @property
    def _protocol(self) -> Protocol:
        return protocol_over("TCP" if self.choice.over_tcp else "UDP", encryption=self._encryption)
