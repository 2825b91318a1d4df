"""`python -m kernelscope`."""

import sys

from .cli import main

sys.exit(main())
