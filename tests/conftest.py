"""Fixtures that every test may use."""

from hypothesis import settings

pytest_plugins = ["tests.fixtures.postgres", "tests.fixtures.api"]

# A busy machine is no bug of ours. In CI hypothesis loads its own profile: no deadline, fixed examples.
settings.register_profile("local", deadline=None)
if settings.get_current_profile_name() == "default":
    settings.load_profile("local")
