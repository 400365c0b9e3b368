"""Read and write parameters in safetensors files, of Hugging Face too."""

import json
import logging
import os
import pathlib
import re
from typing import Any

from fl_sketch.models import layouts, transformer
from fl_sketch.utils import extras, files
from fl_sketch.utils.types import Params
from flax import traverse_util
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

_LOG = logging.getLogger(__name__)
# Of tokenizer_config.json, and their names in `data.tokenization`.
_ROLES = {
  'pad_token': '[PAD]', 'unk_token': '[UNK]', 'cls_token': '[CLS]',
  'sep_token': '[SEP]', 'bos_token': '[CLS]', 'eos_token': '[SEP]',
}  # fmt: skip


def save(path: str | os.PathLike, params: Params, **about: str) -> None:
  """Write parameters by path, such as 'block_0/mlp_in/kernel' or '0/1'.

  `about` are texts in the head of the file, by name.
  """
  with extras.needed('weights'):
    from safetensors import numpy as safe
  flat = {
    jax.tree_util.keystr(path, simple=True, separator='/'): x
    for path, x in jax.tree.leaves_with_path(params)
  }
  # What is written is the memory: of a transposed view, in another order.
  flat = {k: np.asarray(x, order='C') for k, x in flat.items()}
  safe.save_file(flat, path, about)


def load(path: str | os.PathLike, module: nn.Module, params: Params) -> Params:
  """Load the parameters of a file, checked by name and shape.

  The file is what `save` wrote, or model.safetensors of Hugging Face: of ViT,
  BERT, GPT-2, Llama or Qwen2. A missing head of ViT and BERT, or one of other
  classes, stays as drawn, and heads and poolers without a place are left out;
  both are logged. Raises ValueError if there is no such file, or its arrays or
  config.json differ from the model's.
  """
  path = pathlib.Path(path).expanduser()
  stored = _read(path)
  flat: dict[str, Any] = traverse_util.flatten_dict(params, sep='/')
  loaded, faults, used, layout = {}, [], set(), None
  if not flat.keys() & stored.keys():
    layout = layouts.layout_of(module)
  if layout is not None:
    faults += layouts.differences(layout, module, path, stored)
  for name, drawn in flat.items():
    theirs, move = name, lambda x: x
    if layout is not None:
      theirs, move, _ = layouts.find_array(layout, stored, name)
    value = move(stored[theirs]) if theirs in stored else None
    used.add(theirs)
    if value is not None and value.shape == drawn.shape:
      loaded[name] = jnp.asarray(value, drawn.dtype)
    elif name.startswith('head/'):
      _LOG.info('%s stays as drawn: %s has none of its shape.', name, path)
      loaded[name] = drawn
    else:
      held = 'is missing' if value is None else f'has shape {value.shape}'
      faults.append(f'{theirs} {held}, of {name} {drawn.shape}')
  for name in sorted(stored.keys() - used):
    if layout is None or not re.match(layout.spare, name):
      faults.append(f'{name} has no place')
    _LOG.info('%s of %s has no place.', name, path)
  if faults:
    first, kind = '; '.join(faults[:5]), type(module).__name__
    raise ValueError(f'{path} does not fit the arrays of {kind}: {first}.')
  return traverse_util.unflatten_dict(loaded, sep='/')


def _read(path) -> dict[str, np.ndarray]:
  with extras.needed('weights'):
    from safetensors import SafetensorError, numpy as safe
  try:
    stored = safe.load_file(path)
  except (OSError, SafetensorError) as e:
    raise ValueError(f'{path} is no safetensors file: {e}') from e
  for old, new in ('gamma', 'weight'), ('beta', 'bias'):  # bert-base-uncased
    old, new = f'LayerNorm.{old}', f'LayerNorm.{new}'
    stored = {name.replace(old, new): x for name, x in stored.items()}
  return stored


def export(
  folder: str | os.PathLike, module: nn.Module, params: Params,
  length: int,
  tokenizer: str | None = None,
) -> None:  # fmt: skip
  """Write a folder that transformers and `load` read.

  A GPT becomes a GPT2LMHeadModel, a Llama a LlamaForCausalLM, or with biases a
  Qwen2ForCausalLM, and a Bert a BertForSequenceClassification. `length` is of a
  training sample, `tokenizer` the content of tokenizer.json. Raises
  FileExistsError if the folder has files, and ValueError if transformers have
  no such model.
  """
  folder = pathlib.Path(folder).expanduser()
  if folder.is_dir() and any(folder.iterdir()):
    raise FileExistsError(f'{folder} has files; name another folder.')
  flat: dict[str, Any] = traverse_util.flatten_dict(params, sep='/')
  flat = {name: np.asarray(x) for name, x in flat.items()}
  config, arrays = layouts.to_hugging_face(module, flat, length)
  coder: dict[str, Any] = json.loads(tokenizer or '{"added_tokens": []}')
  ids = {token['content']: token['id'] for token in coder['added_tokens']}
  roles = {role: name for role, name in _ROLES.items() if name in ids}
  for role in ('pad_token', 'bos_token', 'eos_token'):  # else those of GPT-2
    config[f'{role}_id'] = ids.get(_ROLES[role])
  if isinstance(module, transformer.Bert) and not coder.get('post_processor'):
    ends = {'cls': '[CLS]', 'sep': '[SEP]'}
    ends = {k: [name, ids.get(name)] for k, name in ends.items()}
    coder['post_processor'] = {'type': 'BertProcessing', **ends}
  with files.save_errors(folder, 'Make room.'):
    folder.mkdir(parents=True, exist_ok=True)
    files.write(folder / 'config.json', config)
    save(folder / 'model.safetensors', arrays, format='pt')
    if tokenizer:
      roles['tokenizer_class'] = 'PreTrainedTokenizerFast'
      files.write(folder / 'tokenizer.json', coder)
      files.write(folder / 'tokenizer_config.json', roles)
