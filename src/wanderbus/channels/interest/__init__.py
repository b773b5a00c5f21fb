"""Interest between servers: what access servers ask of event channels, and where it spreads (SPEC J-10, K-05, K-07).

An access server covers and merges its local filters (:mod:`.interest_set`) and sends changes as a stream of operations
(:mod:`.outgoing_stream`). A resolution server keeps a table for each access server (:mod:`.incoming_streams`) and
spreads it to the others (:mod:`.proxy_channels`).
"""
