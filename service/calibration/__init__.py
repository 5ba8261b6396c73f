"""Calibration: what studies were predicted to reach, against what they reached."""
