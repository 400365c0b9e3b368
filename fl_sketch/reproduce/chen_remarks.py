"""What was tried, and what is likely, where a claim of Chen et al. fails."""

_FEWER = (
  'A hundredth of the 78,042 numbers of this network are 780, of the 42 '
  "million of the paper's 420,000, and it is b beside the intrinsic dimension "
  'of the Hessian that counts (S4-LogD, S4-Fig5), which is largest early in '
  'training. '
)
FIGURE_1_MONOTONE = 'Ten rounds are too few to tell.'
FIGURE_1_BASELINES = 'Ten rounds are too few to tell.'
FIGURE_1_TENTH = (
  'After 300 rounds the network is still at a half of what it reaches, so that '
  'being slower shows as being worse; both learning rates are inside their '
  'grids. ' + _FEWER
)
FIGURE_2 = (
  'CocktailSGD (50.0 %) and 1-bit Adam (50.2 %, with 22 times the bytes) are '
  'above dense FedAdam (48.6 %), and so is dense momentum (50.2 %): with this '
  'little fine-tuning a small rate wins, and Adam on the server, whichever '
  'way it gets its updates, is not the best optimiser here. SAFL is within a '
  'point of its own dense form (SAFL-99).'
)
FIGURE_3_SIZES = (
  'An encoder from scratch needs an adaptive server: dense momentum reaches '
  '53.0 %, Adam 75.0 %. A sketch flattens what Adam adapts to: the second '
  'moment of a desketched update is |update|^2 / b on every coordinate, those '
  'of rare words too, so that Adam becomes momentum with a fixed length of '
  'step. Four times the rounds bring SAFL at d / 100 from 60.8 to 68.1 %. The '
  'paper fine-tunes a BERT that was trained before, which needs far less; no '
  'published weights were at hand.'
)
FIGURE_3_ROUNDS = (
  'Only dense Adam gets to 75 % in 300 rounds; the accuracies at the end '
  'increase with the table (55.0, 57.9, 64.6, 75.0 %).'
)
FIGURE_6_LOSS = (
  'With 78 numbers for 78,042 the loss falls to 82 % in 300 rounds and is '
  'still falling; the larger tables are at 77 and 74 %.'
)
FIGURE_6_PLATEAU = 'Ten rounds are too few to tell.'
FIGURE_6_ORDER = 'Ten rounds are too few to tell.'
HEADLINE_POINT = {
  'resnet': (
    'Tried: five rates for every method, the best of them inside the grid; '
    'larger tables (36.2 % at d / 10); four times the rounds, which bring SAFL '
    'at d / 100 from 31.6 to 38.6 %, with 4 % of the bytes of FedAdam at 40.9 '
    '%. So it is time rather than a plateau that is missing. ' + _FEWER
  ),
  'vit': 'Ten rounds are too few to tell.',
  'text': FIGURE_3_SIZES,
}
HEADLINE_BYTES = {
  'resnet': (
    'Neither SAFL nor any other method at d / 100 gets to 95 % of FedAdam in '
    '300 rounds, CocktailSGD being nearest (34.0 %); 1-bit Adam does, with '
    'whole gradients in its first fifth. SAFL needs more than 1,200 rounds, '
    'which is still fewer bytes, if it gets there.'
  ),
  'vit': (
    'A tie: it starts near the target, and both are there at the first '
    'evaluation, after 20 rounds; a round of SAFL has 0.7 % more bytes.'
  ),
  'text': (
    'SAFL does not get to 95 % of FedAdam in 300 rounds, nor in 1,200 (68.1 of '
    '71.2 %); nor do the other methods at d / 100, which stay near 50 %. 1-bit '
    'Adam, whose preconditioner is that of whole gradients, does. '
    + FIGURE_3_SIZES
  ),
}
