"""Methods of attribution that look inside: what an agent reasons, what its activations hold, what their change does."""
