"""Data channels over reliable UDP: their endpoint, keys and openings. :mod:`.transports` loads it if it is needed."""

from __future__ import annotations

from wanderbus.datachannel.description import DATA_SOCKET, ChannelEnd
from wanderbus.datachannel.trust import Parties
from wanderbus.detection import MakeDetector
from wanderbus.machine import RandomSource
from wanderbus.parameters.transports import RudpConfig
from wanderbus.rudp.endpoint import Endpoint
from wanderbus.rudp.interface import OpenConnection
from wanderbus.rudp.keys import KEY_BYTES, KeyPair


class UdpCarrier:
    """Reliable UDP of one host; for the parameters see :class:`~wanderbus.datachannel.transports.Transports`."""

    def __init__(
        self, random: RandomSource, config: RudpConfig, reset_key: bytes, make_detector: MakeDetector | None
    ) -> None:
        self.endpoint = Endpoint(random, config, socket=DATA_SOCKET, reset_key=reset_key, make_detector=make_detector)
        self._random = random

    def fresh_keys(self) -> KeyPair:
        """Return keys for one sealed connection."""
        return KeyPair(self._random.token(KEY_BYTES))

    def opening(self, local: int, remote: ChannelEnd, keys: KeyPair | None, parties: Parties) -> OpenConnection:
        """Return the input that opens the connection from ``local`` to ``remote``, plain without ``keys``."""
        secrets = None
        if keys is not None:
            salt, context = parties.secret or b"", parties.context(local, remote.connection)
            secrets = keys.secrets(remote.key, salt=salt, context=context, first=parties.role == "agent")
        return OpenConnection(local, remote.connection, remote.address, remote.generation, secrets)
