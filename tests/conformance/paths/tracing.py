"""``wanderbus trace`` of the events of a case in a domain that runs."""

from __future__ import annotations

import re
from pathlib import Path

from tests.api.event_domain import Domain
from tests.api.world import PASSWORDS
from tests.conformance.paths.reference import Refusal
from tests.conformance.paths.running import rows_beside
from tests.conformance.paths.worlds import World
from wanderbus import event_text


async def trace_all(world: World) -> None:
    """Ask where every event of the case would go, by ``wanderbus trace`` in another thread."""
    assert world.domain is not None
    file = _with_addresses(world.domain)
    who = ["--user", "sip:alice@localhost", "--password", PASSWORDS["alice"], "--event-domain", str(file), "--json"]
    matched: dict[tuple[str, str], list[int]] = {key: [] for key in world.subscriptions}
    names = {identity: key for key, identity in world.subscriptions.items()}
    for number, event in enumerate(world.case.events):
        words = [f"{name}={event_text.write_value(value)}" for name, value in event.attributes.items()]
        rows = await rows_beside("domain.trace", "trace", event.subject, *words, *who)
        if isinstance(rows, Refusal):
            world.answers.update({("trace", *key): rows for key in world.subscriptions})
            return
        for outcome in (each for row in rows[1:] for each in row["subscriptions"]):
            if outcome["subscription"] in names:
                matched[names[outcome["subscription"]]].append(number)
    world.answers.update({("trace", *key): numbers for key, numbers in matched.items()})


def _with_addresses(domain: Domain) -> Path:
    """Write the file of a domain with the addresses at which its servers listen; return its path."""
    text = domain.file.read_text("utf-8")
    for server, port in domain.ports.items():
        text = re.sub(rf'(\[servers\.{server}\]\nsip = )".*"', rf'\1"127.0.0.1:{port}"', text)
    file = domain.directory / "listening.toml"
    file.touch(0o600)
    file.write_text(text, "utf-8")
    return file
