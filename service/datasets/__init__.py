"""Registered datasets: files, facts about them, and what their owners allow."""
