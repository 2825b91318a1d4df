"""`kernelscope view`: the page of a run in a browser, also while it is recorded."""

from __future__ import annotations

import argparse
import sys

from kernelscope.cli.arguments import add_run, count

EPILOG = """\
examples:
  kernelscope view                 the newest run, in your browser
  kernelscope view a --diff b      two runs: where they first differ
  kernelscope view --no-browser    print the address only; over ssh, forward its port:
                                   ssh -L PORT:127.0.0.1:PORT …

It listens on this machine alone, and the address holds a token: only who has it sees the run. Ctrl-C ends it.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "view",
        help="a run in your browser, of any length, also while it is recorded",
        description="Show a run in a browser.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument("--diff", metavar="RUN", help="a second run to compare it with")
    parser.add_argument("--port", type=count, default=0, metavar="N", help="default: any free one")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    from kernelscope.cli.arguments import part_of
    from kernelscope.errors import RunError
    from kernelscope.report.answers import Answers
    from kernelscope.report.server import Server
    from kernelscope.store import folder
    from kernelscope.store.stored_run import load
    from kernelscope.views import plain

    run = load(folder.resolve(args.run), part=part_of(args))
    other = None if args.diff is None else load(folder.resolve(args.diff), part=part_of(args))
    try:
        server = Server(Answers(run, other), f"{run.path.name} · kernelscope", args.port)
    except (OSError, OverflowError) as error:
        raise RunError(f"port {args.port} cannot be used: {error}; leave out --port for a free one") from None
    if args.json:
        plain.dump({"address": server.address, "path": str(run.path)})
        sys.stdout.flush()
    else:
        print(f"{run.path} at {server.address}", flush=True)
    if not args.no_browser:
        import webbrowser

        webbrowser.open(server.address)
    try:
        server.serve_forever()
    finally:
        server.server_close()
    return 0
