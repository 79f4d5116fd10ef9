"""Floor 5: the command `latlin`."""

import sys


def main() -> None:
    """Run the command line; without its extra, say what to install."""
    try:
        from latlin.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("latlin"):
            raise
        sys.exit(f"the command line needs {error.name}: install latlin[cli]")
    app()
