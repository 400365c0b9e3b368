"""Figures 1, 2, 3 and 6 of Chen et al. with the paper's models, for a GPU.

  fl-sketch train chen_figures:resnet,safl,4e5 --data_dir=DIR --workdir=DIR
  fl-sketch train chen_figures:vit,fetchsgd,8e4 --config.pretrained=FILE

Source: Chen, Li, Banerjee, arXiv:2411.06770. Words of a variant, the first by
default: 'resnet' (Figures 1 and 6 left, ResNet-101), 'vit' (Figure 2, ViT-B/16,
fine-tuned) or 'bert' (Figures 3 and 6 right); 'safl', or another method of the
studies; b, the numbers that a client sends, which 'fedadam', 'cocktail_sgd' and
'onebit_adam' do not take; and 'quick', two rounds of a small model with b /
1000. Only 'quick' was ever run.

FILE is model.safetensors of google/vit-base-patch16-224-in21k on Hugging Face;
without it the ViT starts from scratch, unlike the paper's. Whether BERT was
trained before is not said, and it is not here: for one that was, give its file
and --config.dataset_options.vocabulary=none.

The paper names neither local steps nor the client rate, and calls an epoch a
round: --config.local_steps=78 --config.rounds=100 --config.eval_every=1 (BERT:
105, 25). Here a round is a step of all clients, as in baselines that send one
gradient. Ours are bfloat16, b2, the kind of sketch and 100 epochs of the ViT.
"""

from . import new, paper, words

# Section 5, configurations, and appendix D: batch, smoothing, weight decay.
_SHARED = {
  'population': 5, 'cohort': 5, 'partition': 'iid', 'batch_size': 128,
  'label_smoothing': 0.1, 'weight_decay': 1e-4, 'local_steps': 1,
  'compute_dtype': 'bfloat16',
}  # fmt: skip
_IMAGES, _DIGITS = {'dataset': 'cifar10'}, {'dataset': 'digits'}
_TEXT = {'dataset': 'sst2', 'dataset_options': {'vocabulary': 30522}}
_MODELS = {  # section 5, configurations; and those of 'quick'
  'resnet': (_IMAGES | {'model': 'resnet101'}, _DIGITS | {'model': 'resnet8'}),
  'vit': (_IMAGES | {'model': 'vit_base', 'model_options': {'side': 224}},
    _DIGITS | {'model': 'vit_nano', 'model_options': {'side': 16}}),
  'bert': (_TEXT | {'model': 'bert_base', 'model_options':
    {'max_length': 512}},
    {'model': 'bert_nano', 'dataset_options': {'vocabulary': 4000}}),
}  # fmt: skip
SIZES = {  # parameters; epochs (section 5, last paragraph), their steps; b
  'resnet': (42_512_970, 100, 78, ('4e5', '4e6', '4e4', '4e3', '4e2')),
  'vit': (85_806_346, 100, 78, ('8e5', '8e4', '8e6')),
  'bert': (109_483_778, 25, 105, ('2e5', '2e6', '2e4', '2e3')),
}


def get_config(variant: str = ''):
  """Returns the config; words of `variant` are as above."""
  model = next((x for x in SIZES if x in variant), 'resnet')
  d, epochs, steps, tables = SIZES[model]
  methods = paper('chen.studies.methods')
  names = sorted(methods.METHODS, key=lambda x: x != 'safl')
  _, name, b, quick = words(variant, [model], names, tables)
  fields = _SHARED | _MODELS[model][0] | {'rounds': epochs * steps}
  fields |= {'eval_every': steps, 'checkpoint_every': 5 * steps}
  scaled = d // 1000 if quick else d
  setting = methods.settings.LearningSetting(model, fields, scaled)
  # CocktailSGD sends 1 % in every panel (section 5).
  share = 0.01 if name == 'cocktail_sgd' else float(b) / d
  fields = methods.method(setting, name, share)
  # Appendix D: Adam 0.01, SGD 1 with momentum 0.9, a cosine to 1e-5.
  adaptive = name in ('fedadam', 'safl', 'cd_adam', 'onebit_adam')
  if name == 'cocktail_sgd':
    fields['client_lr'] = 1.0
  else:
    fields |= {'server_lr': 0.01 if adaptive else 1.0, 'final_server_lr': 1e-5}
  if quick:
    fields |= _MODELS[model][1] | {'rounds': 2, 'batch_size': 4}
  c = new()
  c.update(fields)
  return c
