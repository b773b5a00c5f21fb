"""Links between servers of different domains, through their gateways (decision 0165)."""
