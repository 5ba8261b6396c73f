"""Plans: what a study would do and cost, checked against the data it names."""
