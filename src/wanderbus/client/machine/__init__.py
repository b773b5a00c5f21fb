"""The agent as a machine: register, open a session with the broker, speak its protocol, heal (SPEC A-11, G, D)."""
