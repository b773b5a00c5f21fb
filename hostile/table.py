"""All attacks, in the order of the table of docs/SECURITY.md. A new one is a row in its module's ``ATTACKS``."""

from __future__ import annotations

from typing import Final

from hostile.attack import Attack
from hostile.attacks import (
    agents,
    amplification,
    crowds,
    dialogs,
    eci,
    filters,
    floods,
    neighbours,
    pages,
    passwords,
    patterns,
    servers,
    storage,
    streams,
)

ATTACKS: Final[tuple[Attack, ...]] = (
    *dialogs.ATTACKS,
    *streams.ATTACKS,
    *floods.ATTACKS,
    *filters.ATTACKS,
    *patterns.ATTACKS,
    *amplification.ATTACKS,
    *passwords.ATTACKS,
    *storage.ATTACKS,
    *crowds.ATTACKS,
    *agents.ATTACKS,
    *eci.ATTACKS,
    *pages.ATTACKS,
    *servers.ATTACKS,
    *neighbours.ATTACKS,
)
BY_NAME: Final = {attack.name: attack for attack in ATTACKS}
