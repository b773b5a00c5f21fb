"""Marks of devices that may have filters, in the records of their attachments: a restart notices them (SPEC N-03).

An agent is marked when it attaches. Another server is marked when it gets filters for the first time, and the mark
stays until it has had none for the time of a lease.
"""

from __future__ import annotations

from collections.abc import Container

from wanderbus import records
from wanderbus.broker.links import Links
from wanderbus.broker.readers import Link
from wanderbus.broker.servers.server_users import ServerUsers
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.rows import DeviceRow, device_key
from wanderbus.broker.state.state import BrokerState


class LeaseMarks:
    """Devices that may have filters of the server's previous life, and other servers that may have any."""

    def __init__(self, state: BrokerState, journal: Journal, links: Links, servers: ServerUsers) -> None:
        self._state = state
        self._journal = journal
        self._links = links
        self._servers = servers
        self._unknown: dict[str, tuple[int, float]] = {}
        """Devices that may have filters of the previous life, with the epoch of each and the end of leases."""
        self._marked: dict[str, None] = {}
        """Other servers that are marked."""

    def start(self) -> None:
        """Count the leases of the server's previous life from now on."""
        for row in self._state.devices.values():
            if row.filter_lease_s:
                key = device_key(row.user, row.device)
                self._unknown[key] = row.epoch, self._links.now + row.filter_lease_s
                if self._servers.reserves(row.user):
                    self._marked[key] = None
        for user, former in self._state.former.items():
            for device, lease in former.leases.items():
                if left_s := lease.left_s(self._state.wall_us):
                    self._unknown[device_key(user, device)] = lease.epoch, self._links.now + left_s

    def ends(self) -> list[float]:
        """Return the times at which the leases of the previous life end, without those that have ended."""
        now = self._links.now
        self._unknown = {key: each for key, each in self._unknown.items() if each[1] > now}
        return [until for _, until in self._unknown.values()]

    def attached(self, link: Link, epoch: int) -> None:
        """Forget that an agent may have filters of the previous life, if it is the same life of the agent."""
        if self._unknown.get(link.key, (None, 0.0))[0] == epoch:
            del self._unknown[link.key]

    def of_attachment(self, link: Link, lease_s: float) -> float:
        """Return the mark for the attachment of a device that may have filters for ``lease_s``, 0 for none.

        The agents of another server may have filters of its previous life, so its mark stays.
        """
        row = self._state.devices.get(link.key) if link.is_server else None
        return lease_s if row is None else row.filter_lease_s

    def mark(self, row: DeviceRow, lease_s: float) -> None:
        """Mark another server, which gets filters for ``lease_s``; the record precedes them."""
        if row.filter_lease_s < lease_s:
            self._write(row, lease_s)
        self._marked[device_key(row.user, row.device)] = None

    def sweep(self, watching: Container[str]) -> None:
        """Remove the marks of servers that have no filters; ``watching`` are the devices that have some."""
        self.ends()
        for key in [each for each in self._marked if each not in watching and each not in self._unknown]:
            del self._marked[key]
            if (row := self._state.devices.get(key)) is not None:
                self._write(row, 0.0)

    def _write(self, row: DeviceRow, lease_s: float) -> None:
        attached = records.Attached(
            at_us=self._state.wall_us,
            user=row.user,
            session=row.session,
            device=row.device,
            epoch=row.epoch,
            filter_lease_s=lease_s,
        )
        self._journal.write(attached, urgent=True)
