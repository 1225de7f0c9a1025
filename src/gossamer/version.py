"""The version, apart from the public names so that every layer may read it."""

__version__ = "0.1.0"
