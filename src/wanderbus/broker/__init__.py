"""The broker: sessions, devices, subscriptions, queues (SPEC E, G, H). It knows links, not networks."""
