"""Causes of events in other domains: what a server knows of them, and says of its own events (decision 0175)."""
