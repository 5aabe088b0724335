"""`python -m tests.torture`. A module of its own, since forked processes import the one that was started again."""

import sys

from tests.torture import main

sys.exit(main())
