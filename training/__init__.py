"""Training of the bundled models, Theseus and Ariadne. It stands beside the package and is not installed with it."""
