"""What runs inside Ray: drivers, trials and ranks. They speak HTTP to the control plane only."""
