"""The results of studies as Markdown: a page each, and an index of all."""

from collections.abc import Iterable, Mapping, Sequence
import pathlib
from typing import Any

from fl_sketch.utils import files, markdown

from . import results, verdicts

CLAIM_HEAD = ('claim', 'measured', '95 % interval', 'wanted', 'verdict')
INTRODUCTION = (
  'A claim is an inequality between measured numbers. Its interval is that of '
  'a t-test over seeds, paired where seeds are shared and simultaneous where '
  'the claim is about the worst of several cells; it is of training alone '
  'where a page does not say that tuning was repeated. *Holds* and *does not '
  'hold* are the verdicts that survive the procedure of Benjamini and '
  'Yekutieli at 5 % over all claims of this page; all others are *undecided*, '
  'and the page says on which side of the bound their interval lies. Proofs '
  'and exact counts are listed apart.'
)
_GROUPS = (
  "Claims of the papers' studies", "Claims of this project's own studies",
  'Counter-claims, which say that a paper is wrong', 'Proofs and exact counts',
)  # fmt: skip
_SIGNS = {'<=': '≤', '>=': '≥'}


def number(value: float | None) -> str:
  """Formats a number for tables; None as ''.

  >>> number(0.123456), number(12345.6), number(None)
  ('0.1235', '12,346', '')
  """
  if value is None:
    return ''
  return f'{value:,.0f}' if 1e3 <= abs(value) < 1e9 else f'{value:.4g}'


def index(
  page: Sequence[results.Result], missing: Mapping[str, str] | None = None
) -> str:
  """Formats results as a table with links to NAME.md, and all verdicts.

  `missing` says of studies that were tried why they have no result.
  """
  rows = [
    [f'[{r["name"]}]({r["name"]}.md)', r['title'], summary([r])] for r in page
  ]
  rows += [[name, 'not run', why] for name, why in (missing or {}).items()]
  table = markdown.table(('study', 'what it shows', 'claims'), rows)
  return f'# Results\n\n{INTRODUCTION} {totals(page)}\n\n{table}'


def write(
  page: Sequence[results.Result],
  folder: pathlib.Path,
  missing: Mapping[str, str] | None = None,
) -> None:
  """Writes NAME.md of each result, and index.md; see `index`."""
  folder.mkdir(parents=True, exist_ok=True)
  for result in page:
    files.write(folder / f'{result["name"]}.md', text(result))
  files.write(folder / 'index.md', index(page, missing))


def totals(page: Iterable[results.Result]) -> str:
  """Counts the verdicts: of the papers' studies, of this project's own, others.

  Counter-claims, and what no randomness can change, are counted apart.
  """
  groups: dict[str, list[str]] = {name: [] for name in _GROUPS}
  tested = []
  for result in page:
    own = 'arXiv:' not in result['source']
    for claim in result['claims']:
      is_counter = claim['text'].startswith('counter-claim')
      group = 3 if claim['exact'] else 2 if is_counter else own
      groups[_GROUPS[group]].append(claim['verdict'])
      if claim['measured'] is not None and not claim['exact']:
        tested.append(claim['p'])
  counts = [f'{k}: {verdicts.summary(v) or "none"}.' for k, v in groups.items()]
  decided = verdicts.decided_by_holm(tested)
  return (
    f'{" ".join(counts)} The procedure of Holm, under which no verdict of this '
    f'page is wrong but with a chance of 5 %, decides {decided} of the '
    f'{len(tested)} claims that are tested.'
  )


def summary(page: Iterable[results.Result]) -> str:
  """Counts the verdicts on all claims of these results in a line."""
  return verdicts.summary([c['verdict'] for r in page for c in r['claims']])


def text(result: results.Result) -> str:
  """Formats a result: claims, remarks, pictures, tables, origin."""
  tested = [c for c in result['claims'] if not c['exact']]
  exact = [c for c in result['claims'] if c['exact']]
  held = summary([result])
  parts = [
    f'# {result["name"]}: {result["title"]}',
    f'{result["source"]}.' + (f' Of the claims {held}.' if held else ''),
    _claims('## Claims', tested),
    _claims('## Proofs and exact counts', exact),
    *(f'*{claim}*: {remark}' for claim, remark in remarks(result)),
    *(f'![{p["caption"]}]({p["file"]})\n\n{p["caption"]}'
      for p in result['pictures']),
  ]  # fmt: skip
  for table in result['tables']:
    parts += [table['caption'], markdown.table(table['head'], table['rows'])]
  parts += [*result['notes'], '## Origin', origin(result)]
  return '\n\n'.join(part.rstrip('\n') for part in parts if part) + '\n'


def _claims(heading: str, claims: Sequence[Mapping[str, Any]]) -> str:
  if not claims:
    return ''
  return f'{heading}\n\n{markdown.table(CLAIM_HEAD, map(_cells, claims))}'


def _interval(claim: Mapping[str, Any]) -> str:
  ends = [number(claim[end]) for end in ('low', 'high')]
  return ' to '.join(ends) if all(ends) else ''


def _wanted(claim: Mapping[str, Any]) -> str:
  return f'{_SIGNS[claim["relation"]]} {number(claim["bound"])}'


def measured(claim: Mapping[str, Any]) -> str:
  """Formats what was measured, its interval, and the bound.

  >>> measured({'measured': 1.5, 'low': 1, 'high': 2, 'relation': '<=',
  ...           'bound': 3})
  '1.5 (1 to 2), wanted ≤ 3'
  """
  interval = _interval(claim)
  text = number(claim['measured']) + (f' ({interval})' if interval else '')
  return f'{text}, wanted {_wanted(claim)}'.lstrip(', ')


def _cells(claim: Mapping[str, Any]) -> list[str]:
  """Formats a claim as a row of the table of claims."""
  measured = number(claim['measured'])
  if claim['verdict'] != verdicts.UNTESTABLE and not measured:
    measured = 'not finite'
  interval, wanted = _interval(claim), _wanted(claim)
  verdict = claim['verdict']
  if verdict == verdicts.UNDECIDED and interval:
    low, high, bound = (claim[k] for k in ('low', 'high', 'bound'))
    side = 'above' if low > bound else 'below' if high < bound else 'across'
    verdict += f', interval {side} the bound'
  return [claim['text'], measured, interval, wanted, verdict]


def origin(result: results.Result) -> str:
  """Formats command, scale, machine, date and commit, as far as known."""
  parts = [
    f'Scale {result["scale"]}' if 'scale' in result else None,
    result['device'],
    ', '.join(f'{k} {v}' for k, v in result.get('versions', {}).items()),
    result.get('date'),
    result.get('commit') and f'commit {result["commit"][:12]}',
  ]
  named = f'papers/registered/{result["name"]}.toml'
  before = 'its first run' if result.get('began') else 'that commit'
  registered = (
    f'Methods, seeds, claims and bounds were committed before {before}, in '
    f'{named}.'
    if result.get('registered')
    else 'Its claims were not registered before it ran.'
    * bool(result['claims'])
  )
  made = f'{", ".join(filter(None, parts))}. {registered}'.strip()
  return f'```\n{result["command"]}\n```\n\n{made}'


def remarks(result: results.Result) -> list[tuple[str, str]]:
  """Claims with a remark: why one is not testable, or what was tried.

  The latter is a section of docs/results/NAME.md, of the longest heading with
  which the claim begins. It is about claims that do not hold, or are undecided,
  at cpu scale. Each pair is (claim, remark).
  """
  path = results.STORED / f'{result["name"]}.md'
  text = path.read_text(encoding='utf-8') if path.exists() else ''
  sections = [part.partition('\n') for part in text.split('\n## ')[1:]]
  bodies = {heading: ' '.join(body.split()) for heading, _, body in sections}
  pairs = []
  for claim in result['claims']:
    remark = claim['remark']
    if claim['verdict'] != verdicts.HOLDS and result.get('scale') == 'cpu':
      headings = filter(claim['text'].startswith, bodies)
      remark = remark or bodies.get(max(headings, key=len, default=''), '')
    pairs.append((claim['text'], remark))
  return [pair for pair in pairs if pair[1]]
