"""The commands: where each is, and what it is for.

A module has `add_parser(subparsers)` and `main(args) -> exit status`, and is imported only when it is used.
"""

from __future__ import annotations

COMMANDS = {
    "run": (".cli.run", "run a script and record what it launches"),
    "show": (".cli.show", "the calls of a run, one call, a kernel's source, or a crash"),
    "stages": (".cli.stages", "what the compiler did: graphs, passes, fusion, code, kernel to source line"),
    "diff": (".cli.diff", "where two runs first differ, and why"),
    "determinism": (".cli.determinism", "run a script several times: which kernels are not deterministic"),
    "report": (".cli.report", "one web page of a run, or of two and their diff"),
    "view": (".cli.view", "a run in your browser, of any length, also while it is recorded"),
    "export": (".cli.export", "a run as a Perfetto trace, Parquet tables, JSON or a Graphviz graph"),
    "tui": (".cli.tui", "walk through a run in the terminal: calls, a call, source, diff"),
    "ls": (".cli.ls", "the runs here"),
    "query": (".cli.query", "ask a run in SQL"),
    "pack": (".cli.pack", "make one file of a run"),
    "unpack": (".cli.unpack", "make a run of a packed file"),
    "shadow": (".cli.shadow", "name the kernel that computes something else than eager"),
    "bisect": (".cli.bisect", "find the config, pass, lowering, fusion or kernel that makes a script fail"),
    "repro": (".cli.repro", "write a script that launches one recorded call, or graph, alone and checks it"),
    "reduce": (".cli.reduce", "the smallest graph that still fails in the same way, as a script"),
    "issue": (".cli.issue", "a bug report in Markdown, from a run"),
    "doctor": (".cli.doctor", "what works on this machine, and what to do about the rest"),
    "choreo": (".gcu.command_line", "check, build, run and format Choreo programs"),
    "completion": (".cli.completion", "shell completion for bash, zsh or fish"),
}
