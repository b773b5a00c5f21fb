"""Attacks on a running server, with good agents beside them: ``./do hostile`` (decision 0047)."""
