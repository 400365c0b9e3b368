"""Tables and figures of attacks."""

import pathlib
from typing import Any

from fl_sketch import runs
from fl_sketch.runs import figures
from fl_sketch.utils import extras, files, markdown
import numpy as np

from ...common import study
from .settings import AttackConfig
from .victims import Victim

Row = dict[str, Any]
_COLUMNS = {  # heads of the table, and how a number of it is written
  'per_parameter': ('sent / d', '.3g'),
  'per_unknown': ('sent / (m · batch)', '.3g'),
  'success': ('recovered', '.2f'),
  'median_error': ('median relative error', '.2g'),
  'mse': ('MSE', '.2g'),
  'psnr': ('PSNR, dB', '.1f'),
  'ssim': ('SSIM', '.2f'),
  'label_accuracy': ('labels', '.2f'),
}
_NAMES = {'clip': 'clipped to', 'normalize': 'scaled to', 'top_k': 'top'}


def write(
  c: AttackConfig, victim: Victim, rows: list[Row], folder: pathlib.Path
):
  """Writes table.md and the figures that apply to the rows."""
  files.write(folder / 'table.md', table(rows))
  with extras.optional_figures():
    if any(row['size'] for row in rows):
      figures.draw([_success(rows)]).savefig(folder / 'success.png', dpi=110)
    for n in c.batch_sizes if victim.x.ndim == 4 else ():
      some = [row for row in rows if row['batch_size'] == n]
      picture = _images(c, victim, some, folder)
      picture.savefig(folder / f'images_{n}.png', dpi=110)


def result(c: AttackConfig, rows: list[Row]) -> study.Report:
  """A campaign as a result: shares by operator, the rest, every error."""
  plain = [r for r in rows if r['defence'] == 'none' and r['size'] in c.sizes]
  tables = []
  if len(c.sketches) > 1:
    share = {(r['sketch'], r['size']): f'{r["success"]:.2f}' for r in plain}
    caption = f'Share of {c.examples} inputs recovered to {100 * c.success:g} %'
    caption += f', best of {c.restarts} starts, by b (SRFT: b complex numbers).'
    lines = [[f'`{s}`', *(share[s, b] for b in c.sizes)] for s in c.sketches]
    tables = [study.Table(caption, ['operator', *map(str, c.sizes)], lines)]
  others = [r for r in rows if not tables or r not in plain]
  head, *lines = markdown.cells(table(others))
  tables.append(study.Table('Settings of one operator.', head, lines))
  errors = {f'{label(r)}, batch {r["batch_size"]}': r['errors'] for r in rows}
  caption = 'Share of inputs recovered; the line is at one number an unknown.'
  pictures = [study.Picture(caption, [_success(rows)])] if plain else []
  return study.Report([], {'relative error': errors}, tables, pictures)


def table(rows: list[Row]) -> str:
  """A Markdown table with one row per setting."""
  shown = [name for name in _COLUMNS if any(name in row for row in rows)]
  if 'psnr' not in shown:  # without images the MSE of failures is arbitrary
    shown.remove('mse')
  head = ['what is sent', 'batch', *(_COLUMNS[name][0] for name in shown)]
  lines = []
  for row in rows:
    number = lambda name, row=row: format(row[name], _COLUMNS[name][1])
    cells = [number(name) if name in row else '' for name in shown]
    lines.append([label(row), str(row['batch_size']), *cells])
  return markdown.table(head, lines, left=1)


def label(row: Row) -> str:
  """Describes the message of a setting in words.

  >>> from papers.song.attacks.settings import AttackSetting
  >>> label(AttackSetting(1, 'srht', 64, 3)._asdict())
  'srht, b = 64, 3 rounds'
  """
  parts = ['gradient']
  if row['size']:
    parts = [row['sketch'], f'b = {row["size"]:,}']
  if row['rounds'] > 1:
    parts.append(f'{row["rounds"]} rounds')
  strength = f'{row["strength"]:g}'
  if row['defence'] == 'epsilon':
    parts.append(f'epsilon {strength}')
  elif row['defence'] == 'noise':
    parts.append(f'noise of {strength} its length')
  elif row['defence'] != 'none':
    parts.append(f'{_NAMES[row["defence"]]} {strength}')
  return ', '.join(parts)


def file_of(row: Row) -> str:
  """The name of the file of a setting's images."""
  name = label(row).replace(' = ', '').replace(',', '').replace(' ', '_')
  return f'{row["batch_size"]}_{name}.npz'


def _success(rows) -> figures.Panel:
  """Plots the share of recovered inputs over observed numbers per unknown."""
  plain = [row for row in rows if row['size'] and row['defence'] == 'none']
  groups: dict[tuple[str, int, bool], list[tuple[float, float]]] = {}
  for row in plain:
    key = row['sketch'], row['batch_size'], row['rounds'] > 1
    groups.setdefault(key, []).append((row['per_unknown'], row['success']))
  several = len({n for _, n, _ in groups}) > 1
  lines = []
  for (sketch, n, pooled), points in groups.items():
    name = f'{sketch}, pooled over rounds' if pooled else sketch
    name = f'{name}, batch of {n}' if several else name
    xs, ys = zip(*sorted(points), strict=True)
    lines.append(figures.Line(name, xs, ys, variant=int(pooled)))
  label = 'numbers seen for each unknown: in all rounds / (m · batch)'
  return figures.Panel(
    label, 'share of inputs recovered', lines, x_scale='log', x_mark=1.0
  )


def _images(c, victim, rows, folder):
  """Plots the originals, then one line of reconstructions per setting."""
  images_of = {label(row): _load(folder, row) for row in rows}
  n = rows[0]['batch_size']
  columns = min(len(next(iter(images_of.values()))), 8)
  truth = victim.x[:columns].reshape(-1, *victim.x.shape[1:])
  images_of = {'original': truth} | images_of
  size = 0.85 * columns + 2.2, 0.85 * len(images_of)
  picture = runs.new_figure(*size)
  axes = picture.subplots(len(images_of), columns, squeeze=False)
  scores = {label(row): row for row in rows}
  for line, (name, images) in zip(axes, images_of.items(), strict=True):
    for ax, image in zip(line, images, strict=False):
      ax.imshow(np.clip(image, 0, 1).squeeze(), cmap='gray', vmin=0, vmax=1)
    for ax in line:
      ax.set(xticks=[], yticks=[])
      ax.spines[:].set_visible(False)
    row = scores.get(name)
    words = name if row is None else f'{name}\n{row["psnr"]:.1f} dB'
    line[0].set_ylabel(words, rotation=0, ha='right', va='center', fontsize=8)
  picture.suptitle(f'{c.dataset}, batch of {n}')
  return picture


def _load(folder, row):
  """Reconstructions of the first batches, in the order of the originals."""
  with np.load(folder / 'images' / file_of(row)) as file:
    batches = file['images']
  return batches.reshape(-1, *batches.shape[2:])
