"""Kinds of state that are restored from copies, each a world that tries its points in time."""
