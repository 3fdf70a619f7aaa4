"""The sections of a report, one module an idea; the engine lays out those that are declared as data."""
