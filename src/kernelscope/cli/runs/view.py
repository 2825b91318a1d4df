"""`kernelscope view`: the page of a run in a browser, also while it is recorded."""

from __future__ import annotations

import argparse
import sys

from kernelscope.cli.arguments import add_precision, add_ranks, add_run, load_other, load_run
from kernelscope.errors import RunError
from kernelscope.options import count

_ANY_PORT = "leave out --port for a free one"

DESCRIPTION = "Show a run in a browser."
EPILOG = """\
examples:
  kernelscope view                 show the newest run in your browser
  kernelscope view a --diff b      compare two runs
  kernelscope view --no-browser    print the address only; over ssh, forward its port:
                                   ssh -L PORT:127.0.0.1:PORT …

The server listens on this machine only, and its address contains a secret token. Ctrl-C stops it.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_ranks(parser, "ranks to compare on the page (default: all)")
    parser.add_argument("--diff", metavar="RUN", help="a second run to compare with")
    add_precision(parser)
    parser.add_argument("--port", type=count, default=0, metavar="N", help="default: any free port")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def main(args: argparse.Namespace) -> int:
    from kernelscope.report.answers import Answers
    from kernelscope.report.content.precision import precision_of
    from kernelscope.report.content.ranks import ranks_of
    from kernelscope.report.server import Server
    from kernelscope.store import folder
    from kernelscope.views import plain

    run, other = load_run(args), load_other(args)
    ranks = ranks_of(folder.resolve(args.run), args.ranks or None)
    precision = precision_of(args.precision)
    try:
        server = Server(Answers(run, other, ranks, precision), f"{run.path.name} · kernelscope", args.port)
    except OverflowError:
        raise RunError(f"cannot use port {args.port}: the last one is 65535; {_ANY_PORT}") from None
    except OSError as error:
        raise RunError(f"cannot use port {args.port}: {error.strerror}; {_ANY_PORT}") from None
    if args.json:
        plain.dump({"address": server.address, "path": str(run.path)})
        sys.stdout.flush()
    else:
        print(f"{run.path} at {server.address}", flush=True)
    if not args.no_browser:
        import webbrowser

        webbrowser.open(server.address)
    precision = precision_of(args.precision)
    try:
        server.serve_forever()
    finally:
        server.server_close()
    return 0
