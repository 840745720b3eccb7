"""`modnorm.services.evaluator.server` under a supervisor.

An engine's processes import the main module of their parent again, unless it has this name.
"""

from modnorm.services.evaluator.server import main

main()
