"""Servers of an event domain; at present one access server with its broker (SPEC J-01, J-04)."""
