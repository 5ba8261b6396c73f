"""Fixtures that every test may use."""

from hypothesis import settings

pytest_plugins = ["tests.fixtures.postgres", "tests.fixtures.api"]

# A busy machine is no bug of ours, and a test that passed passes again: examples are fixed.
# `pytest --hypothesis-profile explore` draws others.
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
if settings.get_current_profile_name() == "default":
    settings.load_profile("fixed")
