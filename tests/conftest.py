"""What all tests share."""

from hypothesis import settings

# a loaded machine, or a first call that compiles, is no failure; and runs leave nothing behind
settings.register_profile("truelike", deadline=None, database=None)
settings.load_profile("truelike")
