"""``python -m graphrelu.lab``: the command ``graphrelu``."""

from graphrelu.lab import main

if __name__ == "__main__":
    main()
