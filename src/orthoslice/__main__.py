"""`python -m orthoslice`."""

from orthoslice.cli import app

if __name__ == "__main__":
    app()
