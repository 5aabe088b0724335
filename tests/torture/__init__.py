"""What is promised about failures, tried many times over: kills, damage, hostile input, lost peers. One table.

    make torture                                                # everything
    python -m tests.torture --scale 0.1 --seed 3                # a tenth of it, otherwise chosen
    python -m tests.torture --only kills ray --kills 10         # some groups of rows, with counts of their own
    python -m tests.torture --json torture.json --markdown -    # the table, for other tools and for a page

`lives` runs commands in processes that get signals, and knows how slow the machine is just now; `kills`, `damage`,
`hostile` and `distributed` have the trials; `table` has the rows, and writes them.
"""

import tests.conftest  # noqa: F401 - it sets the environment, which has to happen before JAX is imported
