"""``python -m cosyvoice_dynamo [SECTION.KEY=VALUE ...]``: serve as a worker of Dynamo until SIGTERM."""

import sys

NEEDED = "pip install --no-deps -r requirements/dynamo.txt, beside what the front needs"


def _command() -> int:
    """Run the worker; returns the exit status."""
    try:
        from cosyvoice_dynamo.command import main
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("cosyvoice"):
            raise
        print(f"cosyvoice_dynamo: the module {error.name} is not installed: {NEEDED}", file=sys.stderr)
        return 2
    return main()


if __name__ == "__main__":
    sys.exit(_command())
