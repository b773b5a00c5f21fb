"""The agent: its state machine, and its asyncio interface for applications."""
