"""``python -m irbm.cli``."""

from irbm.cli import main

if __name__ == "__main__":
    main()
