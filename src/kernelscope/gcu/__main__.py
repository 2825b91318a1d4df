"""`python -m kernelscope.gcu check FILE.co`."""

from __future__ import annotations

import argparse
import sys

from .command_line import add_options, main

parser = argparse.ArgumentParser(prog="python -m kernelscope.gcu", description="Choreo programs")
add_options(parser)
sys.exit(main(parser.parse_args()))
