"""What was tried, and what is likely, where a claim of Chen et al. fails."""

FIGURE_1_MONOTONE = ''
FIGURE_1_BASELINES = ''
FIGURE_1_TENTH = ''
FIGURE_2 = ''
FIGURE_3_SIZES = ''
FIGURE_3_ROUNDS = ''
FIGURE_6_LOSS = ''
FIGURE_6_PLATEAU = ''
FIGURE_6_ORDER = ''
HEADLINE_POINT = {'resnet': '', 'vit': '', 'text': ''}
HEADLINE_BYTES = {'resnet': '', 'vit': '', 'text': ''}
