"""`python -m xladder`: the same as `xladder`."""

import os
import sys

# Python has put the working directory first on the path, where somebody else's run may have a module of any name.
if sys.path and not sys.flags.safe_path and os.path.abspath(sys.path[0]) == os.getcwd():
    del sys.path[0]

from xladder.cli.main import main

sys.exit(main())
