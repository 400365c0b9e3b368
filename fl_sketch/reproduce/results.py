"""What a study leaves in its folder: numbers, pictures and text."""

from collections.abc import Iterable
import json
import math
import pathlib
from typing import Any

from fl_sketch.reproduce import lab as lab_lib, study as study_lib
from fl_sketch.utils import files, markdown

Result = dict[str, Any]


def play(study: study_lib.Study, lab: lab_lib.Lab) -> Result:
  """Runs a study, or what is missing of it, and writes NAME.json and .md.

  Its pictures become NAME-1.png and so on, beside them.

  Args:
    study: one of `catalog.STUDIES`.
    lab: where, and at which scale.

  Returns:
    What NAME.json holds: claims with their measured numbers and verdicts, the
    numbers of every seed, the configs, tables, pictures, versions, device.

  Raises:
    ValueError: data are missing, or the folder holds something else.
  """
  lab.played.clear()
  report = study.run(lab)
  lab.folder.mkdir(parents=True, exist_ok=True)
  pictures = []
  for i, (caption, figure) in enumerate(report.pictures, start=1):
    file = f'{study.name}-{i}.png'
    figure.savefig(lab.folder / file, dpi=110)
    pictures.append({'caption': caption, 'file': file})
  result = {
    'name': study.name,
    'title': study.title,
    'source': study.source,
    'scale': lab.scale,
    'command': f'python -m launch.reproduce {study.name}:{lab.scale} '
    '--data_dir=DIR --workdir=DIR',
    'verdict': study_lib.summary([c.verdict for c in report.claims]),
    'claims': [_claim(c, lab.scale) for c in report.claims],
    'tables': [t._asdict() for t in report.tables],
    'pictures': pictures,
    'notes': list(report.notes),
    'seeds': report.seeds,
    'configs': _anywhere(lab),
  } | files.measured_with()
  result = finite(result)
  files.replace(lab.folder / f'{study.name}.json', result)
  files.replace(lab.folder / f'{study.name}.md', text(result))
  return result


def read(folder: pathlib.Path, name: str) -> Result | None:
  """What a study left in a folder; None if it left nothing."""
  path = folder / f'{name}.json'
  return json.loads(path.read_text()) if path.exists() else None


def _anywhere(lab: lab_lib.Lab) -> dict[str, Any]:
  """The configs that were played, without the place where they were."""
  text = json.dumps(lab.played)
  return json.loads(text.replace(str(lab.folder), f'DIR/{lab.scale}'))


def _claim(claim: study_lib.Claim, scale: str) -> dict[str, Any]:
  ok = claim.verdict != study_lib.UNTESTABLE or None
  # What is said of a failure is said of the runs at cpu scale.
  told = ok is None or (claim.verdict == study_lib.FAILS and scale == 'cpu')
  return {
    'text': claim.text,
    'measured': claim.measured,
    'relation': claim.relation,
    'threshold': claim.bound,
    'error': claim.error,
    'margin': claim.margin,
    'ok': ok and claim.verdict == study_lib.HOLDS,
    'verdict': claim.verdict,
    'remark': claim.remark if told else '',
  }


def finite(tree: Any) -> Any:
  """The tree as JSON has it: no NaN and no infinity, which become None."""
  if isinstance(tree, dict):
    return {str(k): finite(v) for k, v in tree.items()}
  if isinstance(tree, list | tuple):
    return [finite(v) for v in tree]
  if hasattr(tree, 'tolist'):  # of NumPy
    return finite(tree.tolist())
  return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def number(value: float | None) -> str:
  """A number as tables have it, '' for none.

  >>> number(0.123456), number(12345.6), number(None)
  ('0.1235', '1.235e+04', '')
  """
  return '' if value is None else f'{value:.4g}'


def claim_cells(claim: dict[str, Any]) -> list[str]:
  """A row of the table of claims."""
  measured = number(claim['measured'])
  if claim['verdict'] != study_lib.UNTESTABLE and not measured:
    measured = 'not finite'
  if claim['error'] is not None:
    measured += f' ± {number(claim["error"])}'
  wanted = f'{claim["relation"]} {number(claim["threshold"])}'
  return [claim['text'], measured, wanted, claim['verdict']]


CLAIM_HEAD = ('claim', 'measured', 'wanted', 'verdict')


def text(result: Result) -> str:
  """A study as Markdown: verdict, claims, remarks, pictures, tables."""
  lines = [
    f'# {result["name"]}: {result["title"]}',
    f'{result["source"]}. Scale {result["scale"]}, {result["device"]}. '
    f'{result["verdict"]}.',
    f'    {result["command"]}',
    markdown.table(CLAIM_HEAD, map(claim_cells, result['claims'])),
    *(f'*{c["text"]}*: {c["remark"]}' for c in remarked(result['claims'])),
    *(f'![{p["caption"]}]({p["file"]})' for p in result['pictures']),
  ]
  for table in result['tables']:
    lines += [table['caption'], markdown.table(table['head'], table['rows'])]
  return '\n\n'.join(line.rstrip('\n') for line in [*lines, *result['notes']])


def remarked(claims: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
  """The claims that have something to be said."""
  return [c for c in claims if c['remark']]
