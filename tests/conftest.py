"""Fixtures that every test may use."""

pytest_plugins = ["tests.fixtures.postgres", "tests.fixtures.api"]
