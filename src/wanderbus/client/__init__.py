"""The agent: its machine, and its awaitable interface for applications."""
