"""``python -m tilewright`` is the command ``tilewright``; Ctrl-C is no defect while it still imports."""

import sys
import warnings


def main() -> int:
    """Run the command line; return its exit status."""
    warnings.formatwarning = _one_line
    try:
        from tilewright.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


def _one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning for a person, to whom the line of code that it came up in says nothing."""
    return f"warning: {' '.join(str(message).split())}\n"


if __name__ == "__main__":
    sys.exit(main())
