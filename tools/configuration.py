"""Write docs/configuration.md and the sample files of examples/ from the structs of the settings; with --check only
say whether they are up to date."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from wanderbus.config import AgentSettings, ProxySettings, RelaySettings, ServerSettings
from wanderbus.settings.event_domain import EventDomainSettings
from wanderbus.settings.federation import FederationSettings, ForeignDomainSettings
from wanderbus.settings.keys import table_of
from wanderbus.settings.writing import reference, sample

ROOT = Path(__file__).resolve().parents[1]


def _names(kind: type[msgspec.Struct]) -> str:
    """Return the keys and tables at the top of a file, as a sentence."""
    table = table_of(kind)
    return (
        ", ".join(f"`{name}`" for name in table.keys) + ", ".join(["", *(f"`[{name}]`" for name in table.tables)]) + "."
    )


PAGE = f"""# Configuration

Written by `./do fmt` from the structs that hold the settings; a test compares the two.

Settings stand in a TOML file. An agent's is named by `wanderbus pub --config FILE` and `sub`, by
`wanderbus.connect(config=FILE)`, or by the environment's `WANDERBUS_CONFIG` where the program says nothing at all; a
server's by `wanderbus up --config FILE` or `wanderbus.Server.from_file(FILE)`, that of a registrar and proxy without a
broker by `wanderbus proxy --config FILE`, and that of a media relay of its own by `wanderbus relay --config FILE`.
Options and arguments come before the file, and every key at the top of a file is an argument of the same name.

`wanderbus config check FILE` says what a file sets, or what is wrong with it; `wanderbus config sample agent`,
`broker`, `proxy` and `relay` print files with every key, which are `agent.toml`, `broker.toml`, `proxy.toml` and
`relay.toml` of `examples/`.

- A path is relative to the directory of the file it stands in.
- The password of an agent is `password`, or stands in `password_file`; the environment's `WANDERBUS_PASSWORD` comes
  before both. A file with a password in it that others can read is warned of. No command shows a password.
- TOML has no word for "no bound" or "not at all": write `"none"` where the tables below admit it. A number below zero
  is refused everywhere.
- The password of a broker at another SIP server is `broker_password`, or stands in `broker_password_file`, or in
  `users` beside its name.
- A refusal or a counted drop names the bound that was met without its table: `queue.notifications_max` is
  `broker.queue.notifications_max` here.

## An agent

{reference(AgentSettings)}
## A server

{reference(ServerSettings)}
## A registrar and proxy alone

These keys of a server, with the same meaning:

{_names(ProxySettings)}

## A relay

{reference(RelaySettings)}
## An event domain

The file `domain.toml`, which `wanderbus domain init` writes ([domains.md](domains.md)).

{reference(EventDomainSettings)}
## A federation

The file `federation.toml`, which `wanderbus federation init` writes ([federation.md](federation.md)).

{reference(FederationSettings)}
### [domains.NAME]

A foreign domain of a federation.

{reference(ForeignDomainSettings)}"""

FILES = {
    ROOT / "docs" / "configuration.md": PAGE.rstrip("\n") + "\n",
    ROOT / "examples" / "agent.toml": "# Settings of an agent: every key, with its default.\n" + sample(AgentSettings),
    ROOT / "examples" / "broker.toml": "# Settings of a server: every key, with its default.\n"
    + sample(ServerSettings),
    ROOT / "examples" / "proxy.toml": "# Settings of a registrar and proxy: every key, with its default.\n"
    + sample(ProxySettings),
    ROOT / "examples" / "relay.toml": "# Settings of a media relay: every key, with its default.\n"
    + sample(RelaySettings),
}


def main() -> int:
    if "--check" not in sys.argv[1:]:
        for path, text in FILES.items():
            path.write_text(text, encoding="utf-8")
        return 0
    stale = [path for path, text in FILES.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is not what the structs say now: run ./do fmt", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
