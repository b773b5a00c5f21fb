"""Event channels of a domain of several servers: pure rules and machines (SPEC J, K, N; DESIGN 10)."""
