"""What every other room stands on: files that are checked, registries, random streams, identifiers. Nothing public."""
