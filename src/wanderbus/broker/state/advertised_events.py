"""Table of the advertisements of devices (SPEC A-17): a fold of their records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wanderbus import records
from wanderbus.broker.state.rows import AdvertisementRow
from wanderbus.broker.state.tables import RowTable


class AdvertisedEvents(RowTable[AdvertisementRow]):
    """One row for each live advertisement, by its id; ``advertisements`` is the name of the table."""

    def __init__(self) -> None:
        super().__init__("advertisements", AdvertisementRow)
        self._touched: dict[str, None] = {}
        """Ids of the advertisements that have begun or ended; not part of the stored state."""

    def apply(
        self, record: records.Advertised | records.AdvertisementsCounted | records.AdvertisementsWithdrawn
    ) -> None:
        """Apply a record of the log."""
        match record:
            case records.Advertised(advertisement=identity, user=user, device=device):
                self.add(AdvertisementRow(identity, user, device, record.subject, record.expression, record.language))
            case records.AdvertisementsCounted(advertisements=several):
                self._let_count(several)
            case records.AdvertisementsWithdrawn(advertisements=several):
                self._withdraw(several)

    def add(self, row: AdvertisementRow) -> None:
        """Add an advertisement."""
        self.put(row.id, row)
        self._touched[row.id] = None

    def _let_count(self, advertisements: Iterable[str]) -> None:
        """Let these advertisements count, as far as they still live."""
        for identity in advertisements:
            if (row := self.get(identity)) is not None:
                row.counts = True
                self.put(identity, row)

    def _withdraw(self, advertisements: Iterable[str]) -> None:
        for identity in advertisements:
            self.drop(identity)
            self._touched[identity] = None

    def of_device(self, user: str, device: str) -> Sequence[AdvertisementRow]:
        """Return the advertisements of a device, in the order in which they were made."""
        return [row for row in self.values() if row.device == device and row.user == user]

    def withdraw_device(self, user: str, device: str) -> None:
        """Remove all advertisements of a device."""
        self._withdraw([row.id for row in self.of_device(user, device)])

    def take_touched(self) -> Sequence[str]:
        """Return the ids of the advertisements that have begun or ended since the last call."""
        touched, self._touched = list(self._touched), {}
        return touched
