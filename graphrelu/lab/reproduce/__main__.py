"""`python -m graphrelu.lab.reproduce`, where the command line's packages are not installed."""

import sys

from graphrelu.lab.reproduce.command import main

sys.exit(main())
