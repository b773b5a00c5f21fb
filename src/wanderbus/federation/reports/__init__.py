"""Reports of gateways: troubles with foreign domains, and events of theirs that were lost."""
