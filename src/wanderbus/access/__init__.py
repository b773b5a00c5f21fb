"""Access server: the sessions and data channels of devices, connected with the broker (SPEC J-01, J-04)."""
