"""Planning of a study before it is run: cost, power, and limits of its models."""
