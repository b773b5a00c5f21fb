"""Asynchronous interfaces to the machines: :mod:`agent`, :mod:`server`, :mod:`rudp`."""
