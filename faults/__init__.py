"""Fault injection for a server: ``kill -9`` under load, and power cuts of a recorded disk."""
