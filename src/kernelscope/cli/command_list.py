"""The commands: where each is, and what it is for.

A module has `add_parser(subparsers)` and `main(args) -> exit status`, and is imported only when it is used.
"""

from __future__ import annotations

COMMANDS = {
    "run": ("cli.programs.run", "run a script and record what it launches"),
    "show": ("cli.runs.show", "the calls of a run, one call, a kernel's source, or a crash"),
    "stages": (
        "cli.runs.stages",
        "what the compiler did: graphs, passes, fusion, code, source lines",
    ),
    "diff": ("cli.runs.diff", "where two runs first differ, and why"),
    "determinism": (
        "cli.programs.determinism",
        "run a script several times and name the kernels that vary",
    ),
    "report": ("cli.runs.report", "one web page of a run, or of two and their diff"),
    "view": ("cli.runs.view", "a run in your browser, of any length, also while it is recorded"),
    "export": ("cli.runs.export", "a run as a Perfetto trace, Parquet tables, JSON or a Graphviz graph"),
    "tui": ("cli.runs.tui", "walk through a run in the terminal: calls, a call, source, diff"),
    "ls": ("cli.runs.ls", "the runs here"),
    "query": ("cli.runs.query", "query a run with SQL"),
    "pack": ("cli.runs.pack", "make one file of a run"),
    "unpack": ("cli.runs.unpack", "make a run of a packed file"),
    "shadow": ("cli.programs.shadow", "name the kernel whose result differs from eager"),
    "bisect": (
        "cli.programs.bisect",
        "find the setting, pass, lowering, fusion or kernel that makes a script fail",
    ),
    "repro": (
        "cli.runs.repro",
        "write a script that runs and checks one recorded call or graph",
    ),
    "reduce": ("cli.programs.reduce", "the smallest graph that still fails in the same way, as a script"),
    "issue": ("cli.runs.issue", "a bug report in Markdown, from a run"),
    "doctor": ("cli.setup.doctor", "what works on this machine, and what to do about the rest"),
    "choreo": ("gcu.command_line", "check, build, run and format Choreo programs"),
    "completion": ("cli.setup.completion", "shell completion for bash, zsh or fish"),
}
