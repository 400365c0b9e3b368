"""What was tried, and what is likely, where a claim of the paper fails."""

BEHIND = {'alike': '', 'unlike': ''}
AHEAD = {'alike': '', 'unlike': ''}
TRANSFERRED = ''
FEDSGD = ''
ROUNDS = ''
SKETCHED = ''
STEPS = ''
LARGER = {'alike': '', 'unlike': ''}
HEADLINE = {'alike': '', 'unlike': ''}
