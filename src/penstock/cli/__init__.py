"""The `penstock` command.

Parses the command line, calls the packages below and prints what they return; decides nothing itself. `root.py` holds
the table of commands, `exits.py` the exit codes. A start must stay cheap: a module here imports click and the standard
library at its top, and everything else inside the function that needs it.
"""

from .root import main as main
