"""Attribution methods that look inside an agent: at its reasoning, its activations, and the effect of patches."""
