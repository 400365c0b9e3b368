"""The results of a study as files: JSON, PNG and Markdown."""

from collections.abc import Iterable
import datetime
import io
import json
import math
import pathlib
import subprocess
from typing import Any

from fl_sketch.reproduce import lab as lab_lib, study as study_lib
from fl_sketch.utils import files, markdown
from matplotlib import figure
from PIL import Image

Result = dict[str, Any]
# Results at cpu scale, and NAME.md with the remarks on claims that fail there.
KEPT = pathlib.Path(__file__).parents[2] / 'docs' / 'results'


def play(study: study_lib.Study, lab: lab_lib.Lab) -> Result:
  """Runs a study, or what is missing of it, and writes NAME.json and .md.

  Its pictures become NAME-1.png and so on, beside them.

  Args:
    study: one of `catalog.STUDIES`.
    lab: where, and at which scale.

  Returns:
    What NAME.json holds: claims with their measured numbers and verdicts, the
    numbers of every seed, the configs, tables, pictures, versions, device,
    commit and date.

  Raises:
    ValueError: data are missing, or the folder holds something else.
  """
  lab.played.clear()
  report = study.run(lab)
  lab.folder.mkdir(parents=True, exist_ok=True)
  pictures = []
  for i, (caption, drawing) in enumerate(report.pictures, start=1):
    file = f'{study.name}-{i}.png'
    _save(drawing, lab.folder / file)
    pictures.append({'caption': caption, 'file': file})
  result = {
    'name': study.name,
    'title': study.title,
    'source': study.source,
    'scale': lab.scale,
    'command': f'python -m launch.reproduce {study.name}:{lab.scale} '
    '--data_dir=DIR --workdir=DIR',
    'verdict': study_lib.summary([c.verdict for c in report.claims]),
    'claims': [_claim(c) for c in report.claims],
    'tables': [t._asdict() for t in report.tables],
    'pictures': pictures,
    'notes': list(report.notes),
    'seeds': report.seeds,
    'configs': _anywhere(lab),
    'commit': _commit(),
    'date': datetime.datetime.now(datetime.UTC).date().isoformat(),
  } | files.measured_with()
  result = finite(result)
  files.replace(lab.folder / f'{study.name}.json', result)
  files.replace(lab.folder / f'{study.name}.md', text(result))
  return result


def read(folder: pathlib.Path, name: str) -> Result | None:
  """The result of a study in a folder; None if there is none."""
  path = folder / f'{name}.json'
  return json.loads(path.read_text()) if path.exists() else None


def collect(
  folders: Iterable[pathlib.Path], names: Iterable[str]
) -> list[tuple[Result, pathlib.Path]]:
  """Reads every result of these studies in these folders, by study.

  Args:
    folders: of one scale each, or `KEPT`.
    names: of the studies.
  """
  pairs = [(name, folder) for name in names for folder in folders]
  results = [(read(folder, name), folder) for name, folder in pairs]
  return [(result, folder) for result, folder in results if result]


def _save(drawing: figure.Figure, path: pathlib.Path):
  """Writes a PNG of 256 colours, a third as large as one of all."""
  full = io.BytesIO()
  drawing.savefig(full, dpi=110)
  Image.open(full).convert('RGB').quantize(256).save(path, optimize=True)


def _commit() -> str | None:
  """Hash of the commit that ran, '-dirty' if files differ; None without git."""
  describe = ('describe', '--always', '--dirty', '--abbrev=40', '--exclude=*')
  command = ['git', '-C', str(pathlib.Path(__file__).parent), *describe]
  try:
    git = subprocess.run(command, capture_output=True, check=False, text=True)
  except FileNotFoundError:
    return None
  return git.stdout.strip() or None


def _anywhere(lab: lab_lib.Lab) -> dict[str, Any]:
  """The configs that were played, without the place where they were."""
  text = json.dumps(lab.played)
  return json.loads(text.replace(str(lab.folder), f'DIR/{lab.scale}'))


def _claim(claim: study_lib.Claim) -> dict[str, Any]:
  ok = claim.verdict != study_lib.UNTESTABLE or None
  return {
    'text': claim.text, 'measured': claim.measured, 'relation': claim.relation,
    'threshold': claim.bound, 'error': claim.error, 'margin': claim.margin,
    'ok': ok and claim.verdict == study_lib.HOLDS, 'verdict': claim.verdict,
    'remark': claim.remark,
  }  # fmt: skip


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
    f'{result["source"]}. {origin(result)}. {result["verdict"]}.',
    f'    {result["command"]}',
    markdown.table(CLAIM_HEAD, map(claim_cells, result['claims'])),
    *(f'*{claim}*: {remark}' for claim, remark in remarks(result)),
    *(f'![{p["caption"]}]({p["file"]})' for p in result['pictures']),
  ]
  for table in result['tables']:
    lines += [table['caption'], markdown.table(table['head'], table['rows'])]
  return '\n\n'.join(line.rstrip('\n') for line in [*lines, *result['notes']])


def origin(result: Result) -> str:
  """Scale, machine, date and commit of a result, as far as it has them."""
  parts = [f'Scale {result["scale"]}', result['device'], result.get('date')]
  commit = result.get('commit')
  return ', '.join(filter(None, [*parts, commit and f'commit {commit[:12]}']))


def remarks(result: Result) -> list[tuple[str, str]]:
  """Claims with a remark: why one is not testable, or what was tried.

  The latter is a section of `KEPT`/NAME.md, of the longest heading with which
  the claim begins. It is about claims that fail at cpu scale.

  Returns:
    (claim, remark) in the order of the claims.
  """
  path = KEPT / f'{result["name"]}.md'
  text = path.read_text(encoding='utf-8') if path.exists() else ''
  sections = [part.partition('\n') for part in text.split('\n## ')[1:]]
  bodies = {heading: ' '.join(body.split()) for heading, _, body in sections}
  pairs = []
  for claim in result['claims']:
    remark = claim['remark']
    if claim['verdict'] == study_lib.FAILS and result['scale'] == 'cpu':
      headings = filter(claim['text'].startswith, bodies)
      remark = bodies.get(max(headings, key=len, default=''), '')
    pairs.append((claim['text'], remark))
  return [pair for pair in pairs if pair[1]]
