"""What drivers said: read from the cluster while they run, kept with their attempts, without secrets."""
