"""What was tried, and what is likely, where a claim of Das et al. fails."""

FIGURE_1_40 = (
  'The bounds were first found on another draw of the problem. At C = 40 '
  'nearly every update is clipped and the two differ by 2 % at most: from I1 '
  'normalising is ahead at all rates (0.982 to 0.990), from I2, next to the '
  'optimum, where it lengthens the short updates that should fade, it is '
  'behind by up to 1 % at q = 1 and the smaller rates.'
)
FIGURE_1_50 = (
  'It holds at 11 of the 12 settings. From I2 at q = 1 and rate 0.001 the '
  'ratio is 0.976 with a standard error of 0.005: normalising is ahead, as the '
  'paper says, by less than the bound, which was found on another draw of the '
  'problem.'
)
FIGURE_1_REVERSED = (
  'The order reverses only once a run is near its floor. From I1, 500 rounds '
  'at the rates 0.001 and 0.002 do not get there, and longer steps win; at '
  'rate 0.004 the order is reversed (1.06 at C = 40, 1.04 at 50), as it is '
  'from I2 at every rate.'
)
CLASSES = {
  'cifar10': (
    'It is 1 client of 4,000: each of its five shards has two images, and a '
    'shard at the border of two classes may have one of each.'
  )
}
TABLE_1_FIXED = {
  ('cifar10', 125.0): (
    'The bound is that of Fashion-MNIST. At this noise and rate clipping loses '
    'half a point from C = 15.625 to 125, and FedAvg is 1.2 points above that: '
    'on 64 features of a small network there is little to win, and the gap is '
    'no larger than its error. Under the noise for 1.5, at the same C and '
    'rate, the grid has 47 % for normalising and 43 % for clipping.'
  )
}
