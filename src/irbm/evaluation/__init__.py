"""What a machine is worth: partition functions, likelihoods, diagnostics. Only reads parameters."""
