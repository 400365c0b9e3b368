"""Reads and writes parameters in safetensors files, of Hugging Face too."""

from collections.abc import Callable
import logging
import os
import pathlib
import re
from typing import Any

from fl_sketch.models import bert, vit
from fl_sketch.utils import extras
from flax import traverse_util
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

_LOG = logging.getLogger(__name__)
_HEAD = 'head/'

# Our names -> those of Hugging Face; the rest of a name is the layer's array.
_ENCODER = {
  vit.ViT: {
    'class_token': 'embeddings.cls_token',
    'positions': 'embeddings.position_embeddings',
    'patches': 'embeddings.patch_embeddings.projection',
    'norm': 'layernorm',
    'head': 'classifier',
  },
  bert.Bert: {
    'words': 'embeddings.word_embeddings.weight',
    'positions': 'embeddings.position_embeddings.weight',
    'token_types': 'embeddings.token_type_embeddings.weight',
    'norm': 'embeddings.LayerNorm',
    'pooler': 'pooler.dense',
    'head': 'classifier',
  },
}
_BLOCK = {
  vit.ViT: {
    'attention/query': 'attention.attention.query',
    'attention/key': 'attention.attention.key',
    'attention/value': 'attention.attention.value',
    'attention/out': 'attention.output.dense',
    'mlp_in': 'intermediate.dense',
    'mlp_out': 'output.dense',
    'norm_attention': 'layernorm_before',
    'norm_mlp': 'layernorm_after',
  },
  bert.Bert: {
    'attention/query': 'attention.self.query',
    'attention/key': 'attention.self.key',
    'attention/value': 'attention.self.value',
    'attention/out': 'attention.output.dense',
    'mlp_in': 'intermediate.dense',
    'mlp_out': 'output.dense',
    'norm_attention': 'attention.output.LayerNorm',
    'norm_mlp': 'output.LayerNorm',
  },
}
_LEAF = {'kernel': 'weight', 'scale': 'weight', 'bias': 'bias'}
_OLD = {
  'LayerNorm.gamma': 'LayerNorm.weight',
  'LayerNorm.beta': 'LayerNorm.bias',
}


def save(path: str | os.PathLike, params: Any) -> None:
  """Writes parameters by path, such as 'block_0/mlp_in/kernel' or '0/1'.

  Args:
    path: of the file, whose folder must be there.
    params: a tree of arrays.
  """
  with extras.needed('weights'):
    from safetensors import numpy as files
  flat = {
    jax.tree_util.keystr(path, simple=True, separator='/'): x
    for path, x in jax.tree.leaves_with_path(params)
  }
  # What is written is the memory: of a transposed view, in another order.
  files.save_file({k: np.asarray(x, order='C') for k, x in flat.items()}, path)


def load(path: str | os.PathLike, module: nn.Module, params: Any) -> Any:
  """Loads the parameters of a file, checked by name and shape.

  The file is what `save` wrote, or one of Hugging Face's for a ViT or BERT, as
  model.safetensors of google/vit-base-patch16-224-in21k and bert-base-uncased.
  A head that is not there, or is of other classes, stays as it was drawn. Heads
  and poolers that the model has no place for are left out. Both are logged.
  Nothing is downloaded, and positions of other images are not interpolated.

  Args:
    path: of the safetensors file.
    module: whose parameters they are.
    params: as drawn; names, shapes and types are theirs.

  Returns:
    A tree as `params`.

  Raises:
    ValueError: there is no such file, it is none, or arrays are missing, of
      other shapes, or of blocks that the model has not; the message names them.
  """
  stored = _read(pathlib.Path(path).expanduser())
  flat: dict[str, Any] = traverse_util.flatten_dict(params, sep='/')
  ours = bool(flat.keys() & stored.keys())
  source_of = _ours if ours else _huggings(module, stored)
  loaded, faults = {}, []
  for name, drawn in flat.items():
    theirs, move = source_of(name)
    value = move(stored.pop(theirs)) if theirs in stored else None
    if value is not None and value.shape == drawn.shape:
      loaded[name] = jnp.asarray(value, drawn.dtype)
    elif name.startswith(_HEAD):
      _LOG.info('%s stays as drawn: %s has none of its shape.', name, path)
      loaded[name] = drawn
    else:
      held = 'is missing' if value is None else f'has shape {value.shape}'
      faults.append(f'{theirs} {held}, of {name} {drawn.shape}')
  for name in sorted(stored):
    if ours or 'encoder.layer.' in name:
      faults.append(f'{name} has no place')
    _LOG.info('%s of %s has no place.', name, path)
  if faults:
    more = f', and {len(faults) - 5} more' if len(faults) > 5 else ''
    raise ValueError(
      f'Expected the arrays of {type(module).__name__} in {path}: '
      f'{"; ".join(faults[:5])}{more}.'
    )
  return traverse_util.unflatten_dict(loaded, sep='/')


def _read(path) -> dict[str, np.ndarray]:
  with extras.needed('weights'):
    from safetensors import SafetensorError, numpy as files
  if not path.is_file():
    raise ValueError(
      f'No file {path}. Download model.safetensors of the model, as of '
      'google/vit-base-patch16-224-in21k or bert-base-uncased.'
    )
  try:
    stored = files.load_file(path)
  except SafetensorError as e:
    raise ValueError(f'{path} is no safetensors file: {e}') from e
  for old, new in _OLD.items():  # of bert-base-uncased
    stored = {name.replace(old, new): x for name, x in stored.items()}
  return stored


def _ours(name: str):
  return name, lambda x: x


def _huggings(module, stored) -> Callable[[str], tuple[str, Callable]]:
  """Our name -> the Hugging Face name and the conversion of its array."""
  kinds = [kind for kind in _ENCODER if isinstance(module, kind)]
  if not kinds:
    raise ValueError(
      f'Expected arrays of {type(module).__name__}, by its own names, not '
      f'{sorted(stored)[:3]}.'
    )
  prefix = {vit.ViT: 'vit.', bert.Bert: 'bert.'}[kinds[0]]
  if not any(name.startswith(prefix) for name in stored):
    prefix = ''
  whole, blocks = _ENCODER[kinds[0]], _BLOCK[kinds[0]]

  def theirs(name):
    start = '' if name.startswith(_HEAD) else prefix
    if block := re.match(r'block_(\d+)/', name):
      start += f'encoder.layer.{block[1]}.'
      name, names = name[block.end() :], blocks
    else:
      names = whole
    layer, _, leaf = name.rpartition('/')
    if not layer:  # an array that is no layer's
      return start + names[leaf], lambda x: x.reshape(x.shape[-2:])
    move = _transposed if leaf == 'kernel' else lambda x: x
    return f'{start}{names[layer]}.{_LEAF[leaf]}', move

  return theirs


def _transposed(x):
  """[out, in] or [out, channels, rows, cols] -> [in, out], channels last."""
  return x.T if x.ndim < 4 else x.transpose(2, 3, 1, 0).reshape(-1, len(x))
