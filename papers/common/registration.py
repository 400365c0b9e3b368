"""What a study will run and claim, written down and committed before it runs.

papers/registered/NAME.toml has its seeds, ranges and trials, which the study
reads, and its claims with their bounds. A result keeps what it was registered
as; one that differs from the file, or is older than the file, is refused.
"""

from collections.abc import Mapping, Sequence
import pathlib
import subprocess
import tomllib
from typing import Any

import numpy as np

from . import verdicts

FOLDER = pathlib.Path(__file__).parents[1] / 'registered'


class RegistrationError(ValueError):
  """A result, or a study, is not what was registered."""


def read(name: str) -> dict[str, Any]:
  """Read the registration of a study; {} if it has none."""
  path = FOLDER / f'{name}.toml'
  text = path.read_text(encoding='utf-8') if path.exists() else ''
  return tomllib.loads(text)


def claims(
  registered: Mapping[str, Any], values: Mapping[str, Any]
) -> list[verdicts.Claim]:
  """Make every registered claim from its values by key, in the file's order.

  Values are a number, which is exact, or numbers by seed, of one cell or of
  several; see `verdicts.of_seeds`. RegistrationError unless the keys are those
  of the registration: no claim is dropped or added after the runs.

  >>> claim = {'key': 'a', 'text': 'loss', 'relation': '<=', 'bound': 2.0}
  >>> [made] = claims({'claim': [claim]}, {'a': [0.9, 1.0, 1.1]})
  >>> made.text, made.bound, made.met
  ('loss', 2.0, True)
  """
  rows: Sequence[Mapping[str, Any]] = registered['claim']
  if [row['key'] for row in rows] != [*values]:
    raise RegistrationError(
      f'The study has the claims {[*values]}, registered are '
      f'{[row["key"] for row in rows]}, in this order.'
    )
  made = []
  for row, found in zip(rows, values.values(), strict=True):
    text, relation, bound = row['text'], row['relation'], row['bound']
    is_number = not isinstance(found, Mapping) and np.ndim(found) == 0
    make: Any = verdicts.exact if is_number else verdicts.of_seeds
    made.append(make(text, found, relation, bound))
  return made


def check(result: Mapping[str, Any]) -> None:
  """Refuse a result that is not of its registration, or older than it.

  RegistrationError if the registration differs from that of the runs, or was
  committed after the commit at which its runs began; without git, its age is
  not checked.
  """
  name, was = result['name'], result.get('registered', {})
  if was != read(name):
    raise RegistrationError(
      f'The result of {name} is of another registration than '
      f'papers/registered/{name}.toml; run the study again.'
    )
  # Older results have only the commit that made their page.
  ran = result.get('began') or result['commit'] or ''
  ran = ran.removesuffix('-dirty')
  last = git('log', '-1', '--format=%H', '--', str(FOLDER / f'{name}.toml'))
  if was and last and git('merge-base', last, ran) != last:
    raise RegistrationError(
      f'The registration of {name}, of commit {last[:12]}, is younger than '
      f'its runs, of {ran[:12]}; register before you run.'
    )


def git(*arguments: str) -> str:
  """What git prints about the folder; '' without git or outside a clone."""
  command = ['git', '-C', str(FOLDER.parent), *arguments]
  try:
    found = subprocess.run(command, capture_output=True, check=False, text=True)
  except FileNotFoundError:
    return ''
  return found.stdout.strip()
