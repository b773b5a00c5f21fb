"""The broker's policy: sessions, devices, subscriptions, queues (SPEC E, G, H). It knows links, not networks."""
