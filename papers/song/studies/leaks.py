"""What attacks recover, input by input: Song, section 7."""

import dataclasses
import time

import numpy as np

from ...common import registration, study
from ...common.workspace import Workspace
from ..attacks import campaign, report, settings, victims
from ..configs import cifar10_attack, mnist_attack, tanh_attack

_CONFIGS = {'mnist': mnist_attack, 'cifar10': cifar10_attack}
_QUICK = {
  'examples': 2, 'steps': 3, 'restarts': 1, 'sizes': [8, 24, 48],
  'pooled': [6], 'noises': [0.5], 'epsilons': [1.0, 8.0, 100.0],
}  # fmt: skip


def _attacked(ws, name, config, own):
  """Attack a config's grid with fields of its own; with its victim."""
  fields = config.get_config(ws.pick('quick', '')).to_dict() | own
  c = settings.AttackConfig.from_mapping(fields)
  ws.configs[f'song/{name}'] = dataclasses.asdict(c)
  folder = ws.folder / 'runs' / 'song' / name
  begun = time.monotonic()
  rows = campaign.run(c, folder, ws.data_dir)
  ws.seconds[f'song/{name}'] = round(time.monotonic() - begun, 1)
  return c, rows, folder


def operators(ws: Workspace) -> study.Report:
  """Shares of inputs of a tanh layer that are recovered."""
  registered = registration.read('S0-NoHarder')
  own = ws.pick(_QUICK, registered['attack'])
  c, rows, _ = _attacked(ws, 'operators', tanh_attack, own)
  made = report.result(c, rows)
  # Claims have the shares of the rest; medians are in the tables.
  defended = [r for r in rows if r['defence'] != 'none']
  return made._replace(
    claims=registration.claims(registered, _shares(c, rows)),
    seeds={report.label(r): r['errors'] for r in defended},
  )


def _shares(c, rows):
  """The values of the claims: whether each input is recovered."""
  found = {
    (r['defence'], r['strength'], r['sketch'], r['size'], r['rounds']): r
    for r in rows
  }
  share = lambda row: np.float64(np.less(row['errors'], c.success))
  plain = {
    f'{r["sketch"]}, b = {r["size"]}': r
    for r in rows
    if (r['defence'], r['rounds']) == ('none', 1) and r['size'] in c.sizes
  }
  whole = share(found['none', 0.0, 'identity', 0, 1])
  of_size = lambda b: {k: share(r) for k, r in plain.items() if r['size'] == b}
  less = lambda b: whole - np.mean([*of_size(b).values()], 0)
  at = lambda kind, x: found[kind, x, 'gaussian', 48, 1]
  errors = np.array(at('noise', 0.5)['errors'])
  return {
    'no harder': {k: whole - share(r) for k, r in plain.items()},
    'enough': {f'b = {b}': less(b) for b in (24, 48)},
    'leak': of_size(48),
    'fewer': {k: share(r) for k, r in plain.items() if r['per_unknown'] < 1},
    'count sketch': of_size(16).get('count_sketch, b = 16', []),
    'pooled': share(found['none', 0.0, 'gaussian', 6, 6]),
    'epsilon': {
      f'epsilon {e:g}': share(at('epsilon', e)) for e in (1.0, 8.0, 100.0)
    },
    'clipped': {kind: share(at(kind, 0.1)) for kind in ('clip', 'normalize')},
    'noise': np.float64(errors >= 0.5),
  }


def images(ws: Workspace) -> study.Report:
  """PSNR of every batch of images that is reconstructed."""
  registered = registration.read('S0-Images')
  psnr, grey, seeds, rows, pictures = {}, {}, {}, [], []
  for i, (name, config) in enumerate(_CONFIGS.items(), 1):
    own = ws.pick(_QUICK_IMAGES, registered[name])
    c, made, folder = _attacked(ws, f'images/{name}', config, own)
    x = victims.load(c, ws.data_dir).x
    for row in made:
      n, label = row['batch_size'], report.label(row)
      means = lambda values, n=n: np.reshape(values, (-1, n)).mean(1)
      # The best grey is the mean of an image.
      best = -20 * np.log10(x[: n * c.examples].std((1, 2, 3)))
      psnr[name, n, row['defence'], row['size']] = means(row['psnrs'])
      grey[name, n] = means(best)
      key = f'{name}, batch of {n}, {label}'
      seeds[key] = {'psnr': row['psnrs'], 'objective': row['objectives']}
      numbers = row['psnr'], row['ssim'], row['objective'], best.mean()
      rows.append([name, f'{n}', label, *(f'{v:.3g}' for v in numbers)])
    file = folder / f'images_{max(c.batch_sizes)}.png'
    if file.exists():
      from PIL import Image  # of the extra that drew it

      small = Image.open(file).convert('RGB').quantize(64)
      small.save(ws.folder / f'S0-Images-{i}.png', optimize=True)
      pictures.append(study.Picture(f'{name}: originals and attacks', ()))
  claims = registration.claims(registered, _decibels(psnr, grey))
  caption = 'Means over all images (objective: median); grey is the best grey.'
  table = study.Table(caption, _HEAD, rows)
  return study.Report(claims, seeds, [table], pictures, [_NOTE])


def _decibels(psnr, grey):
  """The values of the claims: means over each batch."""
  cell = lambda key: f'{key[0]}, batch of {key[1]}'
  at = lambda defence, size: {
    k: x for k, x in psnr.items() if k[2] == defence and k[3] == size
  }
  gradients, tables = at('none', 0), at('none', 839)
  # Cells of a claim have equally many batches: the first of each.
  fewest = min(map(len, gradients.values()))
  gradients = {k: x[:fewest] for k, x in gradients.items()}
  is_private = lambda key: key[0] == 'mnist' and key[2] == 'epsilon'
  noisy = {k[:2]: x for k, x in psnr.items() if is_private(k)}
  return {
    'gradients': {cell(k): x for k, x in gradients.items()},
    'single': {cell(k): x for k, x in gradients.items() if k[1] == 1},
    'tables': {cell(k): x for k, x in tables.items() if k[1] == 1},
    'noise': {cell(k): x - grey[k] for k, x in noisy.items()},
  }


_HEAD = (
  'data', 'batch', 'what is sent', 'PSNR, dB', 'SSIM', 'objective', 'grey, dB'
)  # fmt: skip
_QUICK_IMAGES = {
  'dataset': 'digits', 'model': 'linear', 'examples': 2, 'sizes': [20],
  'defended_size': 20, 'steps': 2,
}  # fmt: skip
_NOTE = (
  'Block-cyclic tables, L-BFGS with total variation from one start, labels '
  'known. Epsilon: 1,000 clients, 100 expected in a round, 100 rounds, delta '
  '1e-5, tables of d / 4 numbers clipped to 1; the attacker sees the sum of '
  'one round and knows the data of all other clients. Claims on both data sets '
  'are of the first six batches.'
)
