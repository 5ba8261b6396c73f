"""Runs: what workers ask for and report while a study is carried out."""
