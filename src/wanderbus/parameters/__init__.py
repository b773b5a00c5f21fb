"""Parameters of servers and agents: structs that depend on no machine (SPEC Q-02)."""
