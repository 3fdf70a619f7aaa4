"""What is inside an agent: captured activations, probes with their controls, and interventions."""
