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
# Read from the text of programs, since importing them takes seconds.
_FLAG = re.compile(
  r"(?:^ +'?|define\()(\w+)'?(?:=|: )(?:\((?!\$)|QUIET)", re.MULTILINE
)
_ABSL_FLAG = re.compile(r"DEFINE_\w+\(\s*'(\w+)'")
_FIELD = re.compile(r'^  (\w+): .*(?:\n    .*)*?= field\(', re.MULTILINE)
_ZSH = """\
whence compdef >/dev/null || { autoload -U compinit && compinit; }
autoload -U bashcompinit && bashcompinit"""
_SCRIPT = """\
_fl_sketch() {{
  local words='' current="${{COMP_WORDS[COMP_CWORD]}}"
  case "$COMP_CWORD ${{COMP_WORDS[1]}}" in
    '1 '*) words='{}' ;;
{}
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
  cases = [
    f"    *' {name}') words='{words(x)}' ;;" for x, name in names.items()
  ]
  if argv[1] == 'zsh':
    print(_ZSH)
  print(_SCRIPT.format(' '.join(names.values()), '\n'.join(cases)))


def words(program: str) -> str:
  """Return the configs, flags and config fields that may follow a command."""
  read = lambda name: (_HERE / f'{name}.py').read_text()
  text = read(program)
  calls = lambda function: re.search(rf'^(\w+ = )?{function}\(', text, re.M)
  flags, known = ['help', *_FLAG.findall(text)], []
  if program == 'bench':
    flags += _ABSL_FLAG.findall(read('../benchmarks/__main__'))
  if calls('define_folders'):
    flags += _FLAG.findall(read('__init__'))
  if calls('configs.define_flag'):
    known, of_config = (
      configs.names(program),
      _ABSL_FLAG.findall(read('configs')),
    )
    flags += of_config[:1] if program == 'attack' else of_config
  if known and program != 'attack':
    for path in sorted(_FIELDS.glob('*.py')):
      flags += [f'config.{x}' for x in _FIELD.findall(path.read_text())]
  return ' '.join([*known, *(f'--{flag}' for flag in flags)])
