"""`kernelscope completion`: completes commands, options and the names of runs."""

from __future__ import annotations

import argparse
import json

from kernelscope.cli.command_list import COMMANDS

DESCRIPTION = "Print a script that completes kernelscope's commands, options and runs in a shell."
EPILOG = """\
examples:
  eval "$(kernelscope completion bash)"       in ~/.bashrc
  eval "$(kernelscope completion zsh)"        in ~/.zshrc, after compinit
  kernelscope completion fish | source        in ~/.config/fish/config.fish
"""

_BASH = """\
_kernelscope() {
  local current="${COMP_WORDS[COMP_CWORD]}" words=""
  case "${COMP_WORDS[1]}" in
%(cases)s
  esac
  if [[ $COMP_CWORD -eq 1 ]]; then words="%(commands)s --help --version"; fi
  local IFS=$'\\n'
  COMPREPLY=($(IFS=' ' compgen -W "$words" -- "$current") $(compgen -f -- "$current"))
  COMPREPLY+=($(cd kscope-runs 2>/dev/null && compgen -d -X '!*.kscope' -- "$current"))
}
complete -o filenames -F _kernelscope kernelscope
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=["bash", "zsh", "fish"])
    parser.add_argument("--json", action="store_true", help="print the commands and their options as JSON")


def main(args: argparse.Namespace) -> int:
    options = {name: _options(name) for name in COMMANDS}
    if args.json:
        print(json.dumps(options))
    elif args.shell == "fish":
        print("complete -c kernelscope -f -n __fish_use_subcommand -a '" + " ".join(options) + "'")
        for name, words in options.items():
            seen = f"__fish_seen_subcommand_from {name}"
            for word in words:
                dash = "-l" if word.startswith("--") else "-o"
                print(f"complete -c kernelscope -n '{seen}' {dash} {word.lstrip('-')}")
        print("complete -c kernelscope -a '(ls -d kscope-runs/*.kscope 2>/dev/null)'")
    else:
        if args.shell == "zsh":
            print("autoload -U +X bashcompinit && bashcompinit")
        cases = "\n".join(f'    {name}) words="{" ".join(words)}" ;;' for name, words in options.items())
        print(_BASH % {"cases": cases, "commands": " ".join(options)})
    return 0


def _options(command: str) -> list[str]:
    """Every option of a command, as its own parser knows them."""
    from kernelscope.cli import parser_for

    [choices] = [a.choices for a in parser_for(command)._actions if isinstance(a, argparse._SubParsersAction)]
    parser = dict(choices)[command]
    return sorted(option for action in parser._actions for option in action.option_strings)
