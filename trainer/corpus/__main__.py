"""`python -m trainer.corpus`."""

from __future__ import annotations

import os
import sys

from trainer.corpus.command import main
from trainer.runtime import program

if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
