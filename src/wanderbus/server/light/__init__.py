"""Lightweight clients of a server (SPEC P-02)."""
