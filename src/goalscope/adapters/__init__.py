"""Other formats: importers of recorded logs."""
