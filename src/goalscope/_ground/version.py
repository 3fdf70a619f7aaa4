"""The version of the package, which the build reads from here, too."""

__version__ = "0.9.0"
