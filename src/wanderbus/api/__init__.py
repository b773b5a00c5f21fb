"""Awaitable faces over the machines: :mod:`agent`, :mod:`server`, :mod:`rudp`."""
