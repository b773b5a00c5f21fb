"""Jobs on a cluster: the connection to it, and the environment that travels with a job (SPEC T-11, decision 0069)."""
