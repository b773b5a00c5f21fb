"""Checks of reliable UDP in a repaired network: everything is delivered in time, and no state is left."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from wanderbus.parameters.transports import RudpConfig
from wanderbus.rudp.path_mtu import LOSSES_MAX
from wanderbus.simulation.rudp.party import Channel, End, RudpParty
from wanderbus.simulation.weight import weight_bytes

if TYPE_CHECKING:
    from wanderbus.simulation.rudp.scenario import RudpScenario

REST_S: Final = 20.0
"""Seconds in which only keepalives may be sent."""

PROBE_S: Final = 1.0
"""Seconds between the probes of a failed connection."""

FRAME_BYTES: Final = 1_100
"""Bytes of a message that one datagram carries: slightly underestimated."""

REST_WEIGHT: Final = 3_000
"""Memory of an endpoint at rest for each connection, bytes: no message, no packet, some numbers and keys."""

FRAME_WEIGHT: Final = 500
"""Memory of a frame in flight besides its bytes: its place in queues, and its packet."""

FLIGHT_WEIGHT: Final = 100_000
"""Memory of the abandoned packets of a connection whose ACK is still accepted."""

WEIGHED_EACH_S: Final = 2.0

FINISHING_LOSS: Final = 0.4
"""Largest number of losses in the two round trips after the last messages; far fewer than their repeats."""


def settle_s(
    config: RudpConfig, rtt_s: float, packets: int, rate: float | None, stall_s: float, *, narrow: bool
) -> float:
    """Return an upper bound, in seconds, for an undisturbed connection to deliver ``packets`` outstanding packets::

        wait + rtt * (1 + rounds) + stalls * (stall + rtt) + packets * datagram_bytes_max / (rate / 2)

    - ``wait = min(timeout * backoff_factor ** retries_max, timeout_max_s)``, at most ``timeout_max_s``, is how long a
      packet in flight may still have to wait for its next repeat, which then takes one ``rtt``.
    - ``rounds`` is how often the congestion window is filled. From its least, two packets, it grows by one packet a
      round trip, up to ``packets_in_flight_max`` W (RFC 9002 7.3.3): ``sqrt(2 * packets) + packets / W``.
    - ``stalls`` is how often the receiving application has to consume half a window, ``stall_s`` each time.
    - ``rate`` are the bytes a second of the narrowest link, of which a window that is halved at each loss uses half
      at least. A loss there may cost another ``wait`` if nothing later shows it.
    - On a ``narrow`` path some packets are lost ``LOSSES_MAX`` times before they are divided.
    """
    rounds = math.sqrt(2 * packets) + packets / config.packets_in_flight_max
    stalls = 2 * packets // config.receive_window_frames
    settling_s = config.timeout_max_s + rtt_s * (1 + rounds) + stalls * (stall_s + rtt_s)
    if narrow:
        settling_s += LOSSES_MAX * (config.timeout_max_s + rtt_s)
    if rate is not None:
        settling_s += config.timeout_max_s + packets * config.datagram_bytes_max / (rate / 2)
    return settling_s


def check_weight(scenario: RudpScenario) -> None:
    """Check the memory of every endpoint, repeatedly from now on, against its messages in flight, both ways."""
    for party in scenario.parties:
        living = [end for end in party.ends if end.state == "open"]
        under_way = sum(_weight_of(message) for end in living for message in end.peer.sent[end.taken :])
        for end in living:
            if not party.endpoint.all_confirmed(end.local_id):
                under_way += sum(map(_weight_of, end.sent))
        most = _weight_at_rest(party) + under_way + FLIGHT_WEIGHT * len(living)
        if (weight := weight_bytes(party.endpoint)) > most:
            scenario.problems.append(f"{party.name}: the endpoint keeps {weight} bytes of {under_way} under way")
    scenario.world.after(WEIGHED_EACH_S, lambda: check_weight(scenario))


def check_settled(scenario: RudpScenario) -> float:
    """Check every living connection against :func:`settle_s`, and probe every failed one.

    Returns the time they took, as a share of the bound.
    """
    world, parties, config = scenario.world, scenario.parties, scenario.parties[0].config
    began, rtt_s = world.now, _worst_rtt_s(scenario)
    meeting = [channel for channel in scenario.channels if channel.is_open_at_both and channel.can_reach]
    learning_s = max((_learning_s(scenario, channel) for channel in meeting), default=0.0)
    packets = sum(_packets(end) for end in scenario.ends if end.state == "open")
    rates = [party.conditions.bytes_per_s for party in parties if party.conditions.bytes_per_s]
    stall_s = 0.0 if config.consume_at_once else max(party.think_s for party in parties)
    narrow = any(party.conditions.datagram_bytes_max for party in parties)
    if narrow:
        packets *= 2
    bound_s = learning_s + settle_s(config, rtt_s, packets, min(rates, default=None), stall_s, narrow=narrow)
    scenario.settled_by = began + learning_s + config.timeout_max_s + rtt_s
    for end in scenario.ends:
        if end.state == "failed" and end.leads_to_peer and end.peer.leads_to_peer:
            _keep_probing(scenario, end, began + PROBE_S + 2 * rtt_s)
    world.run(began + bound_s, lambda: all(_is_settled(channel) for channel in meeting))
    share = (world.now - began) / bound_s
    for channel in meeting:
        if not _is_settled(channel):
            left = [end.outstanding for end in channel.ends]
            scenario.problems.append(f"{left} messages are outstanding {bound_s:.1f} s after all was mended")
    world.run(max(world.now, scenario.settled_by))
    return share


def check_finished(scenario: RudpScenario) -> None:
    """Check that all connections finish: living ends finish, senders to a lost peer notice, then all is at rest.

    Some of the last messages and their ACKs are lost; :meth:`RudpParty.check_acknowledged` checks that ends may leave
    anyway.
    """
    config = scenario.parties[0].config
    living = [channel for channel in scenario.channels if channel.is_open_at_both and channel.can_reach]
    for end in [end for channel in living for end in channel.ends]:
        end.party.finish(end)
    _lose(scenario, FINISHING_LOSS)
    scenario.world.run(scenario.world.now + 2 * _worst_rtt_s(scenario))
    _lose(scenario, 0.0)
    patience_s = (1 + config.retries_max) * config.timeout_max_s + 2 * _worst_rtt_s(scenario)
    scenario.world.run(scenario.world.now + patience_s)
    for channel in living:
        if not all(end.peer_finished for end in channel.ends):
            scenario.problems.append("a peer did not hear that this was all")
    for end in scenario.ends:
        if end.state == "open" and not end.party.endpoint.all_confirmed(end.local_id):
            scenario.problems.append(f"{end.party.name}: something is unconfirmed that no one will confirm")
    _check_rest(scenario)


def _lose(scenario: RudpScenario, loss: float) -> None:
    for party in scenario.parties:
        party.conditions.loss = loss


def check_retired(scenario: RudpScenario) -> None:
    """Check that no state is left after the last connection is closed."""
    for party in scenario.parties:
        for end in party.ends:
            party.close(end)
        if party.node.timers.keys:
            scenario.problems.append(f"{party.name}: timers are left: {party.node.timers.keys}")
        held = {name: value for name, value in vars(party.endpoint).items() if isinstance(value, dict | set | list)}
        if left := [name for name, value in held.items() if value]:
            scenario.problems.append(f"{party.name}: the endpoint keeps {left}")


def _check_rest(scenario: RudpScenario) -> None:
    """Check that only keepalives are sent, only keepalive timers are active, and no state is kept."""
    before = scenario.network.delivered
    scenario.world.run(scenario.world.now + REST_S)
    for party in scenario.parties:
        if party.config.keepalive_s is None and party.node.timers.keys:
            scenario.problems.append(f"{party.name}: timers are left at rest: {party.node.timers.keys}")
        if (weight := weight_bytes(party.endpoint)) > _weight_at_rest(party):
            scenario.problems.append(f"{party.name}: the endpoint keeps {weight} bytes at rest")
    keepalives = any(party.config.keepalive_s for party in scenario.parties)
    if scenario.network.delivered > before and not keepalives:
        scenario.problems.append(f"{scenario.network.delivered - before} datagrams at rest")


def _weight_at_rest(party: RudpParty) -> int:
    return REST_WEIGHT * (1 + len(party.ends))


def _weight_of(message: bytes) -> int:
    return len(message) + (1 + len(message) // FRAME_BYTES) * FRAME_WEIGHT


def _keep_probing(scenario: RudpScenario, end: End, until: float) -> None:
    if end.answered or end.state != "failed" or end.peer.state not in ("open", "failed"):
        return
    if scenario.world.now > until:
        scenario.problems.append(f"{end.party.name}: no probe of a failed connection was answered")
        return
    end.party.probe(end)
    scenario.world.after(PROBE_S, lambda: _keep_probing(scenario, end, until))


def _worst_rtt_s(scenario: RudpScenario) -> float:
    conditions = [party.conditions for party in scenario.parties]
    return sum(each.delay_max_s + (each.line_s_max if each.bytes_per_s else 0.0) for each in conditions)


def _learning_s(scenario: RudpScenario, channel: Channel) -> float:
    """Return the time until both sides know the path: a keepalive or a repeat, and a challenge."""
    if all(end.leads_to_peer for end in channel.ends):
        return 0.0
    keepalives = [party.config.keepalive_s or 0.0 for party in scenario.parties]
    return max(*keepalives, scenario.parties[0].config.timeout_max_s) + 3 * _worst_rtt_s(scenario)


def _packets(end: End) -> int:
    """Return an upper bound of the packets that the outstanding messages need."""
    return sum(1 + len(message) // FRAME_BYTES for message in end.sent[end.peer.taken :])


def _is_settled(channel: Channel) -> bool:
    """Return whether no message of a connection is in flight; a connection that failed meanwhile has none."""
    return not channel.is_open_at_both or not any(
        end.outstanding or not end.party.endpoint.all_confirmed(end.local_id) for end in channel.ends
    )
