"""Write docs/sip-states.md and docs/agent-states.md from the tables of transitions; with --check only compare them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from wanderbus.client.machine.states import AGENT, CHANNEL, AgentState, ChannelState
from wanderbus.mobility.session.session import TRANSITIONS, SIPCommunicationStatus
from wanderbus.sip.transaction.client_transactions import InviteClientTransaction, NonInviteClientTransaction
from wanderbus.sip.transaction.server_transactions import InviteServerTransaction, NonInviteServerTransaction
from wanderbus.sip.transaction.transaction_machine import TransactionMachine
from wanderbus.sip.transaction.transaction_states import State, Trigger

DOCS = Path(__file__).resolve().parents[1] / "docs"

AGENT_HEADING = """# The states of an agent

Drawn by `tools/state_diagram.py` from the tables by which the agent runs (`src/wanderbus/client/machine/states.py`); a
test compares the two. An input that is not drawn changes nothing.

## The agent

"""

CHANNEL_HEADING = """## Its data channel

"""

SIP_HEADING = """# The states of SIP

Drawn by `tools/state_diagram.py` from the tables that the program runs by; a test compares the two.

## SIP communication status of a session

SPEC C-12 and C-15; the table is `TRANSITIONS` in `src/wanderbus/mobility/session/session.py`. A move that is not drawn
raises `LocalProtocolError`. The remote media status, CONNECTED or DISCONNECTED, is independent of it (C-14): it becomes
CONNECTED where a session is established or updated, DISCONNECTED where it ends, and in between it is what the
application says.
"""

MACHINES: tuple[tuple[str, str, type[TransactionMachine]], ...] = (
    ("INVITE client transaction", "RFC 3261 17.1.1.2, figure 5, with RFC 6026 7.2", InviteClientTransaction),
    ("Non-INVITE client transaction", "RFC 3261 17.1.2.2, figure 6", NonInviteClientTransaction),
    ("INVITE server transaction", "RFC 3261 17.2.1, figure 7, with RFC 6026 7.1", InviteServerTransaction),
    ("Non-INVITE server transaction", "RFC 3261 17.2.2, figure 8, with RFC 4320 4.2", NonInviteServerTransaction),
)

Edge = tuple[str, str, str]
"""Edge from a state to a state, with its trigger."""


def diagram(initial: str, edges: Iterable[Edge], final: str | None = None) -> str:
    """Return a Mermaid state diagram; edges between the same two states are drawn as one."""
    labels: dict[tuple[str, str], list[str]] = {}
    for before, after, label in edges:
        labels.setdefault((before, after), []).append(label)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {initial}"]
    lines += [f"    {before} --> {after}: {', '.join(names)}" for (before, after), names in labels.items()]
    lines += [] if final is None else [f"    {final} --> [*]"]
    return "\n".join([*lines, "```", ""])


def session_edges() -> Iterator[Edge]:
    """Yield every transition of the communication status."""
    for before, moves in TRANSITIONS.items():
        for occurrence, after in moves.items():
            yield before.value, after.value, occurrence.value


def transaction_edges(machine: type[TransactionMachine]) -> Iterator[Edge]:
    """Yield every transition of a transaction."""
    for (before, trigger), after in machine.table.items():
        yield before.value, after.value, label_of(trigger)


def label_of(trigger: Trigger) -> str:
    """Return the name of ``trigger`` in the figures of the RFC."""
    return f"timer {trigger.value}" if trigger.name.startswith("TIMER") else trigger.value


def agent_page() -> str:
    """Return the content for docs/agent-states.md."""
    agent = [(before.value, after.value, trigger.value) for (before, trigger), after in AGENT.items()]
    channel = [(before.value, after.value, trigger.value) for (before, trigger), after in CHANNEL.items()]
    drawn_agent = diagram(AgentState.IDLE.value, agent, AgentState.LEFT.value)
    drawn_channel = diagram(ChannelState.NONE.value, channel)
    return f"{AGENT_HEADING}{drawn_agent}\n{CHANNEL_HEADING}{drawn_channel}"


def sip_page() -> str:
    """Return the content for docs/sip-states.md."""
    first, last = SIPCommunicationStatus.UNDEFINED, SIPCommunicationStatus.DISCONNECTED
    parts = [SIP_HEADING, diagram(first.value, session_edges(), last.value)]
    for title, source, machine in MACHINES:
        drawn = diagram(machine.initial.value, transaction_edges(machine), State.TERMINATED.value)
        parts.append(f"## {title}\n\n{source}; the table is that of `{machine.__name__}` in `{_file_of(machine)}`.\n")
        parts.append(drawn)
    return "\n".join(parts)


def _file_of(machine: type[TransactionMachine]) -> str:
    return "src/" + machine.__module__.replace(".", "/") + ".py"


def main() -> int:
    is_current = True
    for name, expected in (("sip-states.md", sip_page()), ("agent-states.md", agent_page())):
        page = DOCS / name
        if "--check" not in sys.argv[1:]:
            page.write_text(expected, encoding="utf-8")
        elif not page.exists() or page.read_text(encoding="utf-8") != expected:
            print(f"docs/{name} is not what the tables say now: run ./do fmt", file=sys.stderr)
            is_current = False
    return 0 if is_current else 1


if __name__ == "__main__":
    sys.exit(main())
