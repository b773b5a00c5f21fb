"""Knowledge of a server about who wants the events of a subject: by the channels of its domain (SPEC N-02)."""

from __future__ import annotations

from collections.abc import Callable

from wanderbus.channels.own_channels import OwnChannels
from wanderbus.subscription import EVERY_SUBJECT


class KnownInterest:
    """Tells which subscriptions concern a subject, and whether all of them are known.

    :param channels: the channels of the domain; None if this server is alone
    :param knows_all: whether the interest of all servers in a subject is known here, unless another server leads it
    """

    def __init__(self, channels: OwnChannels | None, knows_all: Callable[[str], bool]) -> None:
        self.is_alone = channels is None
        self._channels = channels
        self._direct = None if channels is None else channels.direct
        self._knows_all = knows_all

    def lineage(self, subject: str) -> tuple[str, ...]:
        """Return a subject, its parent and so on."""
        return (subject,) if self._channels is None else self._channels.lineage(subject)

    def concerns(self, wanted: str, subject: str) -> bool:
        """Return whether a subscription to ``wanted`` can match events of ``subject``."""
        return wanted == EVERY_SUBJECT or wanted in self.lineage(subject)

    def is_complete(self, subject: str, *, for_server: bool) -> bool:
        """Return whether this server, or the leader of an ordered channel, knows all who want events of a subject.

        For another server only the leader knows it; of decentralised channels each server knows it itself.
        """
        if self._direct is not None and self._direct.takes(subject):
            # What is not advertised has to be refused, so it is sent.
            is_known = self._knows_all(subject) and not self._direct.requires_advertisement(subject)
            return is_known and not for_server
        if self._channels is None or self._channels.leads(subject):
            return self._knows_all(subject) and not (for_server and self._channels is None)
        return not for_server
