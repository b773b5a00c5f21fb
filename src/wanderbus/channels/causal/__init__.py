"""Causal order of the decentralised model: servers send events to each other directly (SPEC K-04, K-06).

::

    server.step([Publish(frozenset({2, 3}), payload)], now)
        -> [WriteRecord(Sent), SendMessage(2, Carried), SendMessage(3, Carried)]
    server.step([MessageCame(2, Carried(header, payload))], now)
        -> [WriteRecord(Accepted), Deliver, SendMessage(2, Acked)]
"""
