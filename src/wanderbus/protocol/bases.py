"""Bases of the messages of both sides."""

from __future__ import annotations

import msgspec


class AgentMessage(msgspec.Struct, frozen=True, array_like=True):
    """Base of the messages of an agent."""


class BrokerMessage(msgspec.Struct, frozen=True, array_like=True):
    """Base of the messages of a broker."""
