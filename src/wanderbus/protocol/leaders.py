"""Messages about leaders of channels that do not know all interest, or cannot be reached."""

from __future__ import annotations

from wanderbus.protocol.bases import AgentMessage, BrokerMessage


class SettleInterest(AgentMessage, frozen=True, tag=27):
    """All that the sender's users want of the receiver's channels is in its subscriptions there (SPEC J-10).

    Only a server may send it, on each new link once these subscriptions are confirmed. It is not answered.
    """


class PublishesWait(BrokerMessage, frozen=True, tag=17):
    """Publishes of this link wait, for ``reason``; with "" they wait no longer. They need not be sent again."""

    reason: str
