"""What was tried, and what is likely, where a claim of Chen et al. fails."""

_FEWER = (
  'A hundredth of the 78,042 numbers of this network are 780, of the 42 '
  "million of the paper's 420,000, and it is b beside the intrinsic dimension "
  'of the Hessian that counts (S4-LogD, S4-Fig5), which is largest early in '
  'training. '
)
FIGURE_1_TENTH = (
  'After 300 rounds SAFL is still rising: at d / 100 it has 36.8 % then and '
  '43.3 % after 1,200, where dense Adam has 49.3 after 300. So being slower '
  'shows as being worse. ' + _FEWER
)
FIGURE_2 = (
  'CocktailSGD (50.5 %) is ahead of dense FedAdam (49.7 %) itself: Adam on the '
  'server, whichever way it gets its updates, is not the best optimiser of '
  'this fine-tuning. SAFL, 48.7 %, is within a point of its own dense form '
  '(SAFL-99).'
)
FIGURE_3_SIZES = (
  'An encoder from scratch needs an adaptive server: dense momentum reaches '
  '58.5 %, Adam 73.7 %. A sketch flattens what Adam adapts to: the second '
  'moment of a desketched update is |update|^2 / b on every coordinate, those '
  'of rare words too, so that Adam becomes momentum with a fixed length of '
  'step. Tables of d / 10 have 71.7 %; at d / 100 four times the rounds bring '
  '67.8 in place of 66.0 %. The paper fine-tunes a BERT that was trained '
  'before, which needs far less; no published weights were at hand.'
)
FIGURE_3_ROUNDS = (
  'Two of the three seeds of dense Adam get to 75 %, and no table does in 600 '
  'rounds; the accuracies at the end increase with the table (56.4, 62.4, '
  '68.6, 73.7 %).'
)
FIGURE_6_LOSS = (
  'With 20 numbers for 78,042 the loss falls to 83 % in 300 rounds and is '
  'still falling; the larger tables are at 78 and 72 %.'
)
HEADLINE_POINT = {
  'resnet': (
    'Tried: seven rates and more at every size, the best of them inside the '
    'grid; tables of d / 10, which have 41.1 %; four times the rounds, which '
    'bring SAFL at d / 100 from 36.8 to 43.3 %, with 4 % of the bytes of '
    'FedAdam at 49.3 %. So it is time rather than a plateau that is missing. '
    + _FEWER
  ),
  'text': FIGURE_3_SIZES,
}
HEADLINE_BYTES = {
  'resnet': (
    'No method at d / 100 or d / 10 gets to 95 % of FedAdam, 46.8 %, in 300 '
    'rounds: CD-Adam (41.5 %) and SAFL (41.1 %) at d / 10 are nearest. 1-bit '
    'Adam does, with whole gradients in its first fifth.'
  ),
  'vit': (
    'Level: SAFL is there after 60 to 90 rounds, CocktailSGD, the better '
    'optimiser here (S4-Fig2), after 50 to 90, with as many bytes in each.'
  ),
  'text': (
    'Two methods get to 95 % of FedAdam with tables of d / 10, CD-Adam after '
    '180 to 240 rounds and SAFL after 240 to 300, with 20 to 33 % of the bytes '
    'of FedAdam; CD-Adam remembers what it did not send, coordinate by '
    'coordinate, and so keeps what Adam adapts to. None does at d / 100.'
  ),
}
