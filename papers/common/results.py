"""The results of a study as files, JSON and PNG, and their verdicts."""

from collections.abc import Iterable, Mapping, Sequence
import datetime
import io
import json
import math
import pathlib
from typing import Any

from fl_sketch.runs import figures
from fl_sketch.utils import extras, files

from . import registration, study as study_lib, verdicts
from .workspace import Workspace

Result = dict[str, Any]
# Results at cpu scale, and NAME.md with the remarks on claims that fail there.
STORED = pathlib.Path(__file__).parents[2] / 'docs' / 'results'
# The hash of the commit that runs, with '-dirty' if files differ.
_COMMIT = 'describe', '--always', '--dirty', '--abbrev=40', '--exclude=*'
_REHEARSAL = (
  'A rehearsal on the digits of scikit-learn or small problems '
  'whatever the study is about: it shows that everything runs, and its numbers '
  'say nothing about any claim. The cpu scale gives verdicts.'
)


def run(
  study: study_lib.Study, ws: Workspace, command: str | None = None
) -> Result:
  """Runs a study, or what is missing of it, and writes NAME.json.

  Pictures become NAME-1.png and so on. At quick scale, on small data, there are
  no claims. Returns the content of NAME.json: claims with measured numbers and
  intervals, the numbers of every seed, configs, tables, pictures, versions,
  device, commit and date. `judge` gives the verdicts.
  """
  ws.configs.clear()
  ws.seconds.clear()
  commit = registration.git(*_COMMIT)
  began = ws.folder / f'{study.name}.began'  # when some of it was run first
  if commit and not began.exists():
    ws.folder.mkdir(parents=True, exist_ok=True)
    files.write(began, commit)
  report = study.run(ws)
  registered = registration.read(study.name)
  title, notes, claims = study.title, report.notes, report.claims
  if ws.scale == 'quick':
    title, notes, claims = f'Rehearsal of: {title}', [_REHEARSAL], []
  result = {
    'name': study.name, 'title': title, 'source': study.source,
    'scale': ws.scale,
    'command': command
    or f'fl-sketch reproduce {study.name}:{ws.scale} '
    '--data_dir=DIR --workdir=DIR',
    'claims': [c._asdict() for c in claims],
    'tables': [t._asdict() for t in report.tables],
    'pictures': [
      {
        'caption': p.caption, 'file': f'{study.name}-{i}.png',
        'columns': p.columns, 'panels': figures.as_json(p.panels),
      }
      for i, p in enumerate(report.pictures, start=1)
    ],
    'notes': list(notes), 'seeds': report.seeds,
    'configs': _anywhere(ws, registered), 'registered': registered,
    'seconds': dict(ws.seconds),
    'began': began.read_text() if began.exists() else None,
    'commit': commit or None,
    'date': datetime.datetime.now(datetime.UTC).date().isoformat(),
  } | files.measured_with()  # fmt: skip
  result = files.finite(result)
  result['seeds'] = _short(result['seeds'])
  ws.folder.mkdir(parents=True, exist_ok=True)
  files.write(ws.folder / f'{study.name}.json', result)
  with extras.optional_figures():
    draw(result, ws.folder)
  return result


def draw(result: Result, folder: pathlib.Path) -> list[pathlib.Path]:
  """Draws the pictures of a result from its numbers, in 256 colours."""
  with extras.needed('plots'):
    from PIL import Image
  paths = []
  for picture in result['pictures']:
    if not picture.get('panels'):  # of images
      continue
    panels = figures.from_json(picture['panels'])
    full = io.BytesIO()
    figures.draw(panels, picture['columns']).savefig(full, dpi=130)
    paths.append(folder / picture['file'])
    # A third as large as of all colours.
    small = Image.open(full).convert('RGB').quantize(256)
    small.save(paths[-1], optimize=True)
  return paths


def _short(numbers: Any) -> Any:
  """Rounds the floats of a tree of JSON to six digits.

  >>> _short({'a': [0.123456789, 3, None]})
  {'a': [0.123457, 3, None]}
  """
  if isinstance(numbers, dict):
    return {k: _short(v) for k, v in numbers.items()}
  if isinstance(numbers, list):
    return [_short(v) for v in numbers]
  return float(f'{numbers:.6g}') if isinstance(numbers, float) else numbers


def read(folder: pathlib.Path, name: str) -> Result | None:
  """The result of a study in a folder; None if there is none."""
  path = folder / f'{name}.json'
  return json.loads(path.read_text()) if path.exists() else None


def collect(
  folders: Iterable[pathlib.Path], names: Iterable[str]
) -> list[tuple[Result, pathlib.Path]]:
  """Reads every result of these studies, with its folder, and judges claims.

  A folder is of one scale, or `STORED`. RegistrationError if a result is not of
  its registration.
  """
  pairs = ((read(folder, name), folder) for name in names for folder in folders)
  found = [(result, folder) for result, folder in pairs if result]
  for result, _ in found:
    registration.check(result)
  judge([result for result, _ in found])
  return found


def judge(page: Sequence[Result]) -> None:
  """Adds verdicts to all claims of a page, which are decided together."""
  claims = [claim for result in page for claim in result['claims']]
  decided = verdicts.decide([_claim(claim) for claim in claims])
  for claim, verdict in zip(claims, decided, strict=True):
    claim['verdict'] = verdict


def _claim(claim: Mapping[str, Any]) -> verdicts.Claim:
  """Restores a claim from JSON, where None stands for NaN."""
  fields = {k: claim[k] for k in verdicts.Claim._fields if k in claim}
  for name in ('measured', 'low', 'high'):
    if fields[name] is None and not (name == 'measured' and claim['remark']):
      fields[name] = math.nan
  return verdicts.Claim(**fields)


def _anywhere(ws: Workspace, registered: Mapping[str, Any]) -> dict[str, Any]:
  """The configs that ran, without their place and what is registered."""
  text = json.dumps(ws.configs).replace(str(ws.folder), f'DIR/{ws.scale}')
  return {k: _own(x, registered) for k, x in json.loads(text).items()}


def _own(config: Mapping[str, Any], registered: Mapping[str, Any]):
  """The fields of a config that its registration has not, by their name."""

  def has(name, value):
    known: Any = registered.get(name)
    inside = isinstance(value, dict) and isinstance(known, list)
    return name in registered and (value in known if inside else value == known)

  return {k: x for k, x in config.items() if not has(k, x)}
