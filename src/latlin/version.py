"""The version, for whoever writes it into a page or a file."""

__version__ = "0.2.0"
