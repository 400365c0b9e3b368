"""Time codecs and NVFlare's own filters on 25 million numbers, one core.

  python filters.py

A contestant has a process of its own. NVFlare's filters need the package
bitsandbytes, and its 8-bit filter a GPU, without which it is left out. Peak
memory is that beyond the update, as Linux tells it.
"""

import os
import pathlib
import subprocess
import sys
import time

import numpy as np

SIZES = (1_000_000,) * 25
CODECS = 'eden(bits=2)', 'eden', 'sign', 'int8', 'bfloat16'


def of_codec(text, update):
  """Return encode and decode of a codec, and bytes of a message."""
  from fl_sketch.sites.numpy_updates import Updates

  updates = Updates(text)
  encode = lambda: updates.encode(update, number=0, sender=0)
  return encode, lambda message: updates.decode(message, like=update), len


def of_filter(kind, update):
  """Return the same of the pair of filters of NVFlare."""
  from nvflare.apis.dxo import DXO, DataKind
  from nvflare.apis.fl_context import FLContext
  from nvflare.apis.shareable import Shareable
  from nvflare.app_opt.pt.quantization.dequantizer import ModelDequantizer
  from nvflare.app_opt.pt.quantization.quantizer import ModelQuantizer

  there, back, context = ModelQuantizer(kind), ModelDequantizer(), FLContext()
  made = lambda: DXO(DataKind.WEIGHT_DIFF, dict(update))
  encode = lambda: there.process_dxo(made(), Shareable(), context)
  decode = lambda dxo: back.process_dxo(dxo, Shareable(), context)
  return encode, decode, lambda dxo: sum(x.nbytes for x in dxo.data.values())


def peak():
  """Return the MB that this process has held at most."""
  # Not getrusage's, which counts what the process that started it has held.
  status = pathlib.Path('/proc/self/status').read_text()
  return int(status.partition('VmHWM:')[2].split()[0]) / 1e3


def measure(name):
  """Print a row: name, seconds of both ways, bits a number, memory."""
  draws = np.random.default_rng(0)
  update = {
    f'{i}': draws.standard_normal((1000, n // 1000), np.float32)
    for i, n in enumerate(SIZES)
  }
  make = of_codec if name in CODECS else of_filter
  encode, decode, size = make(name, update)
  before, seconds = peak(), []
  for _ in range(3):
    start = time.perf_counter()
    message = encode()
    middle = time.perf_counter()
    bits = 8 * size(message) / sum(SIZES)
    decode(message)
    seconds.append((middle - start, time.perf_counter() - middle))
    del message
  there, back = np.median(seconds, axis=0)
  more = (peak() - before) / (4 * sum(SIZES) / 1e6)
  print(f'| {name} | {there:.2f} | {back:.2f} | {bits:.2f} | {more:.1f} |')


if sys.argv[1:]:
  measure(sys.argv[1])
else:
  import torch

  filters = ['float16']
  if torch.cuda.is_available():
    filters.append('blockwise8')
  print('| what | s to encode | s to decode | bits a number | copies |')
  print('| --- | ---: | ---: | ---: | ---: |', flush=True)
  for each in (*CODECS, *filters):
    env = os.environ | {'OMP_NUM_THREADS': '1'}
    subprocess.run([sys.executable, __file__, each], check=True, env=env)
