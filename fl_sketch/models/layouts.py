"""Names and shapes of our models' arrays in files of Hugging Face."""

from collections.abc import Callable, Collection, Iterator, Mapping
import json
import pathlib
import re
from typing import Any, NamedTuple

from fl_sketch.models import decoder, transformer
import flax.linen as nn
import numpy as np

Move = Callable[[np.ndarray], np.ndarray]


class Layout(NamedTuple):
  """The names of one kind of file."""

  prefix: str  # of all but heads, in files of a model with a head
  block: str  # before the names of block i, with {} for i
  whole: Mapping[str, str]  # our layers and arrays outside of blocks -> theirs
  # Our layers in a block -> theirs; or theirs, and which third of it.
  inside: Mapping[str, str | tuple[str, int]]
  spare: str = r'(?!.*encoder\.layer\.)'  # what a file may have beside them
  transposed: bool = True  # whether kernels in blocks are [out, in]
  # Of a module, fields of config.json, which shapes do not tell, and the values
  # that suit it; `to_hugging_face` writes the first one.
  expected: Callable[[Any], dict[str, Any]] = lambda module: {}
  # Other fields -> attributes of the module, or the arrays of so many rows.
  sizes: Mapping[str, str] = {'': 'a layout of transformers'}  # it has none


def _of_gpt(module):
  return {
    'model_type': ('gpt2',), 'n_head': (module.heads,),
    'layer_norm_epsilon': (decoder.EPSILON,),
    'activation_function': ('gelu_new', 'gelu_pytorch_tanh'),
    'scale_attn_weights': (True,), 'scale_attn_by_inverse_layer_idx': (False,),
  }  # fmt: skip


def _of_llama(module):
  kinds = 'llama', 'qwen2'
  return {
    'model_type': kinds[::-1] if module.qkv_bias else kinds,
    'num_attention_heads': (module.heads,),
    'num_key_value_heads': (module.kv_heads or module.heads,),
    'rms_norm_eps': (module.epsilon,), 'rope_theta': (module.theta,),
    'rope_type': ('default',), 'rope_scaling': (), 'hidden_act': ('silu',),
    'use_sliding_window': (False,),
  }  # fmt: skip


def _inside_encoder(attention):
  parts = ((x, f'{attention}.{x}') for x in ('query', 'key', 'value'))
  names = {f'attention/{ours}': f'attention.{x}' for ours, x in parts}
  names['attention/out'] = 'attention.output.dense'
  return names | {'mlp_in': 'intermediate.dense', 'mlp_out': 'output.dense'}


_SIZES = {
  'vocab_size': 'words', 'hidden_size': 'width', 'num_hidden_layers': 'depth',
  'intermediate_size': 'block_0/mlp_out/kernel',
}  # fmt: skip
_ARCHITECTURES = {
  'bert': 'BertForSequenceClassification', 'gpt2': 'GPT2LMHeadModel',
  'llama': 'LlamaForCausalLM', 'qwen2': 'Qwen2ForCausalLM',
}  # fmt: skip

LAYOUTS: dict[type[nn.Module], Layout] = {
  transformer.ViT: Layout(
    prefix='vit.', block='encoder.layer.{}.',
    whole={
      'class_token': 'embeddings.cls_token', 'norm': 'layernorm',
      'positions': 'embeddings.position_embeddings',
      'patches': 'embeddings.patch_embeddings.projection', 'head': 'classifier',
    },
    inside={
      **_inside_encoder('attention'),
      'norm_attention': 'layernorm_before', 'norm_mlp': 'layernorm_after',
    },
  ),
  transformer.Bert: Layout(
    prefix='bert.', block='encoder.layer.{}.',
    whole={
      'words': 'embeddings.word_embeddings.weight',
      'positions': 'embeddings.position_embeddings.weight',
      'token_types': 'embeddings.token_type_embeddings.weight',
      'norm': 'embeddings.LayerNorm', 'pooler': 'pooler.dense',
      'head': 'classifier',
    },
    inside={
      **_inside_encoder('self'),
      'norm_attention': 'attention.output.LayerNorm',
      'norm_mlp': 'output.LayerNorm',
    },
    expected=lambda module: {'model_type': ('bert',)},
    sizes=_SIZES | {
      'num_attention_heads': 'heads', 'max_position_embeddings': 'positions',
      'num_labels': 'num_classes',
    },
  ),
  decoder.GPT: Layout(
    prefix='transformer.', block='h.{}.',
    whole={
      'words': 'wte.weight', 'positions': 'wpe.weight', 'norm': 'ln_f',
      'logits': 'lm_head',
    },
    inside={
      'attention/query': ('attn.c_attn', 0),
      'attention/key': ('attn.c_attn', 1),
      'attention/value': ('attn.c_attn', 2),
      'attention/out': 'attn.c_proj', 'mlp_in': 'mlp.c_fc',
      'mlp_out': 'mlp.c_proj', 'norm_attention': 'ln_1', 'norm_mlp': 'ln_2',
    },
    spare=r'lm_head\.weight$|.*\.attn\.(masked_)?bias$',  # masks
    transposed=False, expected=_of_gpt,
    sizes={
      'vocab_size': 'words', 'n_positions': 'positions', 'n_embd': 'width',
      'n_layer': 'depth', 'n_inner': 'block_0/mlp_out/kernel',
      'tie_word_embeddings': 'tied',
    },
  ),
  decoder.Llama: Layout(
    prefix='model.', block='layers.{}.',
    whole={'words': 'embed_tokens.weight', 'norm': 'norm', 'logits': 'lm_head'},
    inside={
      'attention/query': 'self_attn.q_proj',
      'attention/key': 'self_attn.k_proj',
      'attention/value': 'self_attn.v_proj',
      'attention/out': 'self_attn.o_proj', 'mlp_gate': 'mlp.gate_proj',
      'mlp_in': 'mlp.up_proj', 'mlp_out': 'mlp.down_proj',
      'norm_attention': 'input_layernorm',
      'norm_mlp': 'post_attention_layernorm',
    },
    spare=r'lm_head\.weight$|.*\.rotary_emb\.inv_freq$',
    expected=_of_llama,
    sizes=_SIZES | {
      'max_position_embeddings': 'length', 'tie_word_embeddings': 'tied',
    },
  ),
}  # fmt: skip
_HEADS = 'head/', 'logits/'
_LEAF = {'kernel': 'weight', 'scale': 'weight', 'bias': 'bias'}


def layout_of(module: nn.Module) -> Layout | None:
  """Return the layout of a module's published files, if it has one."""
  kinds = (x for kind, x in LAYOUTS.items() if isinstance(module, kind))
  return next(kinds, None)


def find_array(
  layout: Layout, names: Collection[str], name: str
) -> tuple[str, Move, int]:
  """Find one of our arrays, such as 'block_0/mlp_in/kernel', in a file.

  Returns its name among `names`, a function from their array to ours, and which
  third of theirs that is.
  """
  prefixed = any(each.startswith(layout.prefix) for each in names)
  start = layout.prefix if prefixed and not name.startswith(_HEADS) else ''
  if block := re.match(r'block_(\d+)/', name):
    start += layout.block.format(block[1])
    name = name[block.end() :]
  layer, _, leaf = name.rpartition('/')
  if not layer:  # an array that is no layer's
    return start + layout.whole[leaf], lambda x: x.reshape(x.shape[-2:]), 0
  theirs = (layout.inside if block else layout.whole)[layer]
  move, third = (lambda x: x), 0
  if isinstance(theirs, tuple):
    theirs, third = theirs
    move = lambda x: np.array_split(x, 3, axis=-1)[third]
  if leaf == 'kernel' and (layout.transposed or not block):
    move = _transposed
  return f'{start}{theirs}.{_LEAF[leaf]}', move, third


def _transposed(x):
  return x.T if x.ndim < 4 else x.transpose(2, 3, 1, 0).reshape(-1, len(x))


def to_hugging_face(
  module: Any, flat: Mapping[str, np.ndarray], length: int
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
  """Return config.json and the arrays of a file, of our arrays by name.

  `length` is of inputs. Raises ValueError for a model that transformers lack.
  """
  layout = layout_of(module) or Layout('', '', {}, {})
  config = {k: v[0] for k, v in layout.expected(module).items() if v}
  known = {name: len(x) for name, x in flat.items()} | {'length': length}
  for field, ours in layout.sizes.items():
    config[field] = known.get(ours, getattr(module, ours, None))
    if config[field] is None:
      raise ValueError(
        f'{type(module).__name__} without {ours} cannot be exported; GPT with '
        'learned positions, Llama and BERT can.'
      )
  if rope := {k: config[k] for k in config if k in ('rope_theta', 'rope_type')}:
    config['rope_parameters'] = rope  # since transformers 5
  config['architectures'] = [_ARCHITECTURES[config['model_type']]]
  parts: dict[str, dict[int, np.ndarray]] = {}
  for name, x in flat.items():
    theirs, move, third = find_array(layout, [layout.prefix], name)
    x = x.T if move is _transposed else x
    parts.setdefault(theirs, {})[third] = x
  join = lambda x: np.concatenate([x[i] for i in sorted(x)], axis=-1)
  return config, {name: join(x) for name, x in parts.items()}


def differences(
  layout: Layout, module: Any, path: pathlib.Path, stored: Mapping[str, Any]
) -> Iterator[str]:
  """Yield how a model of equal names and shapes differs, by config.json."""
  head = stored.get('lm_head.weight')
  if head is not None and getattr(module, 'tied', False):
    words, *_ = find_array(layout, stored, 'words')
    if not np.array_equal(head, stored.get(words, 0)):
      yield f'lm_head.weight is not {words}, so not tied'
  path = path.with_name('config.json')
  fields = layout.expected(module)
  if not fields or not path.is_file():
    return
  config = json.loads(path.read_text(encoding='utf-8'))
  config |= config.get('rope_parameters') or {}  # since transformers 5
  for name, ours in fields.items():
    theirs = config.get(name)
    if theirs is not None and theirs not in ours:
      yield f'config.json has {name}={theirs!r}, the model {ours}'
