"""Print the script by which bash or zsh completes commands, configs and flags.

  source <(fl-sketch completion bash)

Put this line into ~/.bashrc, or with zsh into ~/.zshrc.
"""

import pathlib
import re
import sys

from fl_sketch import utils

from . import begin, configs, summaries

_HERE = pathlib.Path(__file__).parent
_FIELDS = pathlib.Path(utils.__file__).parents[1] / 'runs' / 'fields'
_FLAG = r"(?:^ +'?|define\()(\w+)'?(?:=|: )(?:\(|QUIET)|DEFINE_\w+\(\s*'(\w+)'"
_FIELD = r'^  (\w+): .*(?:\n    .*)*?= field\('
_ZSH = """\
whence compdef >/dev/null || { autoload -U compinit && compinit; }
autoload -U bashcompinit && bashcompinit
"""
_BASH = """\
_fl_sketch() {{
  local words='' current="${{COMP_WORDS[COMP_CWORD]}}"
  case "$COMP_CWORD ${{COMP_WORDS[1]}}" in
    '1 '*) words='{}' ;;{}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _fl_sketch fl-sketch"""


def main(argv):
  """Print the script for a shell."""
  begin(argv[:1])
  if argv[1:] not in (['bash'], ['zsh']):
    sys.exit('Name the shell: fl-sketch completion bash, or zsh.')
  names = {x: x.replace('_', '-') for x in summaries(_HERE, 'main')}
  case = "\n    *' {}') words='{}' ;;".format
  cases = ''.join(case(name, words(x)) for x, name in names.items())
  start = _ZSH if argv[1] == 'zsh' else ''
  print(start + _BASH.format(' '.join(names.values()), cases))


def words(program: str) -> str:
  """Return the configs, flags and config fields that may follow a command."""
  if program in ('completion', 'configs'):
    return '--help'
  # Read from texts: to import programs takes seconds.
  read = lambda name: (_HERE / f'{name}.py').read_text()
  text, known = read(program), []
  text += read('../benchmarks/__main__') if program == 'bench' else ''
  text += read('__init__') if 'define_folders(' in text else ''
  if 'configs.define_flag(' in text:
    text, known = text + read('configs'), configs.names(program)
  flags = ['help', *map(''.join, re.findall(_FLAG, text, re.MULTILINE))]
  if program == 'attack':
    flags = [x for x in flags if x not in ('config_help', 'plugins')]
  elif known:
    text = '\n'.join(path.read_text() for path in sorted(_FIELDS.glob('*.py')))
    fields = re.findall(_FIELD, text, re.MULTILINE)
    flags += [f'config.{name}' for name in fields]
  return ' '.join([*known, *(f'--{flag}' for flag in flags)])
