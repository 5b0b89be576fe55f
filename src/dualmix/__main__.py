"""`python -m dualmix` is `dualmix`."""

from dualmix.cli import main

if __name__ == "__main__":
    main()
