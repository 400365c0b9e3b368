"""Writes models to folders that Hugging Face's transformers load."""

import json
import os
import pathlib
from typing import Any

from fl_sketch.models import bert, layouts, pretrained
from fl_sketch.utils import files
from flax import traverse_util
import numpy as np

# Of tokenizer_config.json, and their names in `data.tokenization`.
_ROLES = {
  'pad_token': '[PAD]', 'unk_token': '[UNK]', 'cls_token': '[CLS]',
  'sep_token': '[SEP]', 'bos_token': '[CLS]', 'eos_token': '[SEP]',
}  # fmt: skip


def export(
  folder: str | os.PathLike, module: Any, params: Any, length: int,
  tokenizer: str | None = None,
) -> None:  # fmt: skip
  """Writes what transformers load, and `pretrained.load` reads again.

  A GPT becomes a GPT2LMHeadModel, a Llama a LlamaForCausalLM, or with biases a
  Qwen2ForCausalLM, and a Bert a BertForSequenceClassification. `length` is of a
  training sample, `tokenizer` the content of tokenizer.json. If the folder has
  files, it is a FileExistsError; if it cannot be written, a SaveError; and if
  transformers have no such model, a ValueError.
  """
  folder = pathlib.Path(folder).expanduser()
  if folder.is_dir() and any(folder.iterdir()):
    raise FileExistsError(f'{folder} has files; name another folder.')
  flat: dict[str, Any] = traverse_util.flatten_dict(params, sep='/')
  flat = {name: np.asarray(x) for name, x in flat.items()}
  config, arrays = layouts.published(module, flat, length)
  coder: dict[str, Any] = json.loads(tokenizer or '{"added_tokens": []}')
  ids = {token['content']: token['id'] for token in coder['added_tokens']}
  roles = {role: name for role, name in _ROLES.items() if name in ids}
  for role in ('pad_token', 'bos_token', 'eos_token'):  # else those of GPT-2
    config[f'{role}_id'] = ids.get(_ROLES[role])
  if isinstance(module, bert.Bert) and not coder.get('post_processor'):
    ends = {'cls': '[CLS]', 'sep': '[SEP]'}
    ends = {k: [name, ids.get(name)] for k, name in ends.items()}
    coder['post_processor'] = {'type': 'BertProcessing', **ends}
  message = lambda why: f'{folder} cannot be written: {why}. Make room.'
  with files.save_errors(message, folder):
    folder.mkdir(parents=True, exist_ok=True)
    files.replace(folder / 'config.json', config)
    pretrained.save(folder / 'model.safetensors', arrays, format='pt')
    if tokenizer:
      roles['tokenizer_class'] = 'PreTrainedTokenizerFast'
      files.replace(folder / 'tokenizer.json', coder)
      files.replace(folder / 'tokenizer_config.json', roles)
