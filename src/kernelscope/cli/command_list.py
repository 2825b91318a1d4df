"""The commands: the module of each, and what it is for.

A module has DESCRIPTION, EPILOG, add_options(parser) and main(args) -> exit status, and may have USAGE.
It is imported only when its command is used.
"""

from __future__ import annotations

COMMANDS = {
    "why": ("cli.programs.why", "find out what is wrong with a script, with the commands below"),
    "run": ("cli.programs.run", "run a script and record what it launches"),
    "show": ("cli.runs.show", "print the calls of a run, one call, a kernel's source, or a crash"),
    "stages": ("cli.runs.stages", "print what the compiler did: graphs, passes, fusion, code, source lines"),
    "diff": ("cli.runs.diff", "find where two runs first differ, and why"),
    "ranks": ("cli.runs.ranks", "find which rank of a run differs first from the others, and where"),
    "determinism": ("cli.programs.determinism", "run a script several times and name the kernels that vary"),
    "audit": ("cli.programs.audit", "check with a profiler that every launch is inside a recorded call"),
    "report": ("cli.runs.report", "write a run, or two runs and their diff, as one web page"),
    "view": ("cli.runs.view", "show a run of any length in your browser, even while it is being recorded"),
    "export": ("cli.runs.export", "write a run as a Perfetto trace, Parquet tables, JSON or Graphviz"),
    "tui": ("cli.runs.tui", "browse a run in the terminal: calls, one call, source, diff"),
    "ls": ("cli.runs.ls", "list the runs in a folder"),
    "query": ("cli.runs.query", "query a run with SQL"),
    "pack": ("cli.runs.pack", "pack a run into one file"),
    "unpack": ("cli.runs.unpack", "unpack a packed run"),
    "shadow": ("cli.programs.shadow", "name the kernel whose result differs from eager"),
    "invariance": (
        "cli.programs.invariance",
        "name the kernel that makes the result for a row depend on the batch",
    ),
    "compare": (
        "cli.programs.compare",
        "name the first call whose difference from a reference is more than rounding",
    ),
    "precision": (
        "cli.programs.precision",
        "measure each kernel against float64, and try which could be bfloat16 or fp8",
    ),
    "bisect": (
        "cli.programs.bisect",
        "find the setting, pass, lowering, fusion or kernel that makes a script fail",
    ),
    "repro": ("cli.runs.repro", "write a script that runs and checks one recorded call or graph"),
    "reduce": ("cli.programs.reduce", "write a script with the smallest graph that still fails the same way"),
    "issue": ("cli.runs.issue", "write a bug report in Markdown from a run"),
    "mcp": ("cli.setup.mcp", "serve these commands to coding assistants (Model Context Protocol)"),
    "doctor": ("cli.setup.doctor", "check what works on this machine, and suggest fixes"),
    "choreo": ("gcu.command_line", "check, build, run and format Choreo programs"),
    "completion": ("cli.setup.completion", "print shell completion for bash, zsh or fish"),
}
