"""``python -m cosyvoice_front [SECTION.KEY=VALUE ...]``: run the front until Ctrl-C or SIGTERM."""

import sys

NEEDED = "python3 scripts/environment.py --front, or pip install --no-deps -r requirements/front.txt"


def _command() -> int:
    """Run the front; returns the exit status."""
    try:
        from cosyvoice_front.command import main
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("cosyvoice"):
            raise
        print(f"cosyvoice_front: the module {error.name} is not installed: {NEEDED}", file=sys.stderr)
        return 2
    return main()


if __name__ == "__main__":
    sys.exit(_command())
