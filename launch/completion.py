"""Print the script by which bash or zsh completes commands, configs and flags.

  source <(fl-sketch completion bash)

Put this line into ~/.bashrc, or with zsh into ~/.zshrc. The first flag of a
command takes seconds, as its help is asked for.
"""

import pathlib
import sys

from . import begin, configs, summaries

_ZSH = """\
whence compdef >/dev/null || { autoload -U compinit && compinit; }
autoload -U bashcompinit && bashcompinit
"""
_BASH = """\
_fl_sketch() {{
  local words='' command="${{COMP_WORDS[1]}}"
  local current="${{COMP_WORDS[COMP_CWORD]}}"
  case "$COMP_CWORD $command $current" in
    '1 '*) words='{commands}' ;;
    *' --'*)
      if [ "$_fl_sketch_asked" != "$command" ]; then
        _fl_sketch_asked="$command"
        _fl_sketch_flags="$(fl-sketch "$command" --help </dev/null 2>&1 |
          sed -nE 's/^  --(\\[no\\])?([a-z_]+).*/--\\2/p')"
      fi
      words="$_fl_sketch_flags" ;;
    *)
      case "$command" in
        attack) words='{attack}' ;;
        account|config|deploy|site|spectrum|sweep|train) words='{train}' ;;
      esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _fl_sketch fl-sketch"""


def main(argv):
  """Print the script for a shell."""
  begin(argv[:1])
  if argv[1:] not in (['bash'], ['zsh']):
    sys.exit('Name the shell: fl-sketch completion bash, or zsh.')
  commands = summaries(pathlib.Path(__file__).parent, 'main')
  words = {name: ' '.join(configs.names(name)) for name in ('attack', 'train')}
  words['commands'] = ' '.join(x.replace('_', '-') for x in commands)
  print(_ZSH * (argv[1] == 'zsh') + _BASH.format(**words))
