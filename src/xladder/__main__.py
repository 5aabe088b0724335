"""`python -m xladder`: the same as `xladder`."""

import sys

from xladder.cli.main import main

sys.exit(main())
