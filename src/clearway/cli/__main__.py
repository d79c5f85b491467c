"""`python -m clearway.cli`: the same as the command `clearway`."""

from clearway.cli import main

if __name__ == "__main__":
    main()
