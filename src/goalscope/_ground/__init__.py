"""The foundation of all other rooms: checked files, registries, random streams, identifiers. Nothing is public."""
