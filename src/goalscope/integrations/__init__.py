"""Frameworks of others: Inspect, verifiers, OpenEnv. Each registers like a stranger's package; no room names them."""
