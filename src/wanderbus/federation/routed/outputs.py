"""Outputs of the links that go through other domains, and their paths."""

from __future__ import annotations

from typing import NamedTuple

from wanderbus.federation.shared_outputs import AtGateway, LinksRequest
from wanderbus.machine import Output, SetTimer


class TreePath(NamedTuple):
    """A path along the tree of a type, with both ends."""

    type: str
    domains: tuple[str, ...]


class ForSharedLinks(Output, frozen=True):
    """A request to the links that the gateways of the domain have."""

    request: LinksRequest


RoutedOutput = AtGateway | ForSharedLinks | SetTimer
"""All outputs."""
