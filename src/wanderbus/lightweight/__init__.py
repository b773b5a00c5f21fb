"""Lightweight client: publish, subscribe and session operations over TLS (SPEC P-02).

It imports the standard library alone, and ``python -m wanderbus.lightweight`` prints it as one file to copy. ``Core``
is a pure machine without sockets and clock, which also runs under MicroPython; ``Client`` runs it on a blocking
socket::

    with Client("127.0.0.1", 5080, "alice", "secret", device="sensor-7", state=stored) as client:
        client.subscribe("StockExchange", "(Stock == PETR4) and (Price < 25)")
        client.publish("Reading", {"celsius": 21.5})
        for item in client:
            work(item)
            store(client.state)  # with the result of the work
            client.ack()

A client that is started again with the stored ``state`` goes on behind the last item that ``state`` covers, and sends
what was published but not yet answered. docs/lightweight.md describes every byte.
"""

from wanderbus.lightweight.client import Client
from wanderbus.lightweight.core import Core
from wanderbus.lightweight.messagepack import Date, LightError
from wanderbus.lightweight.records import Item

__all__ = ["Client", "Core", "Date", "Item", "LightError"]
