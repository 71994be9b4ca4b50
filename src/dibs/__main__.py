"""`python -m dibs`: the same as `dibs`."""

from dibs.cli import main

if __name__ == "__main__":
    main()
