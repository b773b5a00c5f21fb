"""Extensions of a server: code of the operator, given as objects or named in settings (SPEC H-10, G-23, G-24, G-26)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from wanderbus.broker.device_changes import Hook
from wanderbus.broker.disconnection import DisconnectionHook
from wanderbus.broker.queues.policy_arguments import Policy
from wanderbus.broker.queues.queue_policies import QueuePolicies
from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.restrictions.restriction_kinds import Kind
from wanderbus.config import ServerSettings
from wanderbus.detection import MakeDetector
from wanderbus.errors import ConfigurationError, Refused
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.runtime.plugins import load
from wanderbus.settings.server import ExtensionSettings

Loaded = TypeVar("Loaded")


class Extensions(msgspec.Struct, frozen=True):
    """The extensions of one broker."""

    restrictions: CustomRestrictions
    policies: QueuePolicies
    hook: DisconnectionHook
    detector: MakeDetector | None
    """Returns the failure detector of each data channel; None for the defaults."""


def extensions_of(
    settings: ServerSettings,
    restrictions: Mapping[str, Kind] | None = None,
    policies: Mapping[str, Policy] | None = None,
    hook: Hook | None = None,
    detector: MakeDetector | None = None,
) -> Extensions:
    """Return the extensions that the settings name, and those given as objects, which take precedence.

    :raises ConfigurationError: a named extension cannot be loaded, or has the wrong type
    """
    named = settings.extensions or ExtensionSettings()
    kinds = {
        name: _loaded(f"extensions.restrictions.{name}", reference, Kind)
        for name, reference in named.restrictions.items()
    }
    if hook is None and named.disconnection is not None:
        hook = _callable("extensions.disconnection", named.disconnection)
    if detector is None and named.detector is not None:
        detector = _callable("extensions.detector", named.detector)
    named_policies = {
        name: _callable(f"extensions.queue_policies.{name}", reference)
        for name, reference in named.queue_policies.items()
    }
    known = QueuePolicies({**named_policies, **(policies or {})})
    _check_default(settings, known)
    return Extensions(CustomRestrictions({**kinds, **(restrictions or {})}), known, DisconnectionHook(hook), detector)


def _check_default(settings: ServerSettings, policies: QueuePolicies) -> None:
    try:
        policies.check((settings.broker or BrokerConfig()).queue.policy)
    except Refused as error:
        raise ConfigurationError(f"broker.queue.policy: {error}; name it in [extensions.queue_policies]") from None


def _loaded(key: str, reference: str, wanted: type[Loaded]) -> Loaded:
    found = load(key, reference)
    if not isinstance(found, wanted):
        raise ConfigurationError(
            f"{key}: {reference} is not a {wanted.__module__}.{wanted.__qualname__}, but {found!r}"
        )
    return found


def _callable(key: str, reference: str) -> Any:
    found = load(key, reference)
    if not callable(found):
        raise ConfigurationError(f"{key}: {reference} is not a function, but {found!r}")
    return found
