"""`kernelscope repro`: a standalone script of one recorded call, or of one graph."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from kernelscope.cli.arguments import add_imports, add_run, add_trust, load_run
from kernelscope.errors import RunError
from kernelscope.options import count
from kernelscope.text.amounts import counted

DESCRIPTION = "Write a standalone script with the real inputs of one call or one graph."
EPILOG = """\
examples:
  kernelscope run --values save --stages train.py    record the inputs and FX nodes of each kernel
  kernelscope repro --call 17                        writes ./repro_call_17.py, with its tensors beside it
  kernelscope repro --call 17 --run                  … and run it, to see whether that kernel alone is wrong
  kernelscope repro --graph 0_forward -o bug         write a whole graph into ./bug
  kernelscope repro --call 17 --benchmark            time the kernel beside eager and Inductor

If you did not make the run, the script is written, but run with --trust only.
The script needs torch (and triton for Triton kernels) and nothing else. Its exit status: 0 the kernel's
result equals the recorded one and that of eager, 1 it does not, 2 inconclusive.
RUN is a folder, or the name of a run in ./kscope-runs. The default is the newest run.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add = parser.add_argument
    add("--call", type=count, metavar="N", help="the call, as numbered by `kernelscope show`")
    add("--graph", metavar="GRAPH", help="the graph: its number, name or compile id")
    add("--stage", default="", metavar="NAME", help="with --graph: which stage (dynamo, aot, post_grad)")
    add("-o", dest="output", default=".", metavar="DIR", help="output folder; default: here")
    add_trust(parser)
    add_imports(parser)
    add("--run", dest="runs", action="store_true", help="run the script")
    add("--benchmark", action="store_true", help="run the script and time it beside eager and Inductor")


def main(args: argparse.Namespace) -> int:
    from kernelscope.repro import files
    from kernelscope.repro.issue_folder import code_of
    from kernelscope.repro.one_call import call_script
    from kernelscope.repro.one_graph import graph_script
    from kernelscope.store.safety.origin import refuse_untrusted

    if (args.call is None) == (args.graph is None):
        raise RunError("give either --call N, as numbered by `kernelscope show`, or --graph GRAPH")
    if args.stage and args.graph is None:
        raise RunError("--stage needs --graph GRAPH")
    run = load_run(args)
    why = "" if args.trust else run.why_not_made_here()
    if args.call is not None:
        script = call_script(run, args.call, args.imports)
    else:
        script = graph_script(run, args.graph, args.imports, args.stage)
    if args.runs or args.benchmark:
        refuse_untrusted(run.path, why, code_of(run, args.call, args.graph))
    if why:
        script.notes.append(f"the run was not made here ({why}): read the script before you run it")
    path = files.write(script, Path(args.output))
    beside = path.with_suffix(".safetensors") if script.tensors else None
    if args.json:
        tensors = None if beside is None else str(beside)
        print(json.dumps({"script": str(path), "tensors": tensors, "notes": script.notes}))
    else:
        print(f"{path}  ({counted(len(script.tensors), 'tensor')} in {beside.name})" if beside else str(path))
        for note in script.notes:
            print(f"  note: {note}")
    if not (args.runs or args.benchmark):
        return 0
    words = ["--benchmark"] if args.benchmark else []
    output = sys.stderr if args.json else None
    return subprocess.run([sys.executable, str(path), *words], stdout=output, check=False).returncode
