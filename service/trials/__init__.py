"""Trials: the candidates of a study's search."""
