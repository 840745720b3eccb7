"""`python -m modnorm` is the `modnorm` command."""

from modnorm.cli import main

if __name__ == "__main__":
    main()
