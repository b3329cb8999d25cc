"""``python -m tilewright`` is the command ``tilewright``; Ctrl-C is no defect while it still imports."""

import sys


def main() -> int:
    """Run the command line; return its exit status."""
    try:
        from tilewright.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
