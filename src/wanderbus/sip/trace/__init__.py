"""Traces of SIP messages: ladders, captures and exports (SPEC U-06)."""
