"""`python -m bertkit`: what torchrun and accelerate start.

In: the command line.  Out: the exit code of the command.  Next: cli.py
"""

from bertkit.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
