"""Changes of a certificate, each of which changes what it says."""


def programs(program):
  """A program and all programs within it."""
  yield program
  for *_, inner in program['equations']:
    for x in inner:
      yield from programs(x)


def rows_of(c, *names):
  """Equations of these primitives."""
  rows = [x for p in programs(c['program']) for x in p['equations']]
  return [x for x in rows if x[0] in names]


def put_constant(c, row, dtype, value):
  """Gives an equation a constant as its last argument."""
  row[2][-1] = len(c['variables'])
  c['variables'].append([dtype, [], c['kinds'].index('public')])
  made = ['constant', {'value': value}, [], row[2][-1:], []]
  for p in programs(c['program']):
    if row in p['equations']:
      p['equations'].insert(p['equations'].index(row), made)


def variables_of(c, *words):
  """Variables of kinds with one of the words."""
  named = lambda x: any(w in c['kinds'][x[2]] for w in words)
  return [n for n, x in enumerate(c['variables']) if named(x)]


def change_type(c, r):
  var = r.choice(c['variables'])
  var[2] = r.choice([k for k in range(len(c['kinds'])) if k != var[2]])


def claim_public(c, r):
  n = r.choice(
    variables_of(c, 'rows', 'mixed', 'sum', 'contribution', 'secret')
  )
  c['kinds'].append('public')
  c['variables'][n][2] = len(c['kinds']) - 1


def change_equation(c, r):
  """Replaces what makes a contribution, a sum or noise by other arithmetic."""
  parts = {*variables_of(c, 'contribution', 'sum', 'noise')}
  found = [
    row
    for p in programs(c['program'])
    for row in p['equations']
    if not row[4] and parts & {*row[3]}
  ]
  r.choice(found)[0] = r.choice(['mul', 'sin', 'cumsum', 'my_callback', 'max'])


def drop_mark(c, r):
  r.choice(rows_of(c, 'contribution', 'drawn', 'released'))[0] = 'neg'


def leak(c, r):
  """Lets what is released or published be data instead."""
  data = {*variables_of(c, 'rows', 'mixed')} - {*variables_of(c, 'noise')}
  choices = [
    (row, n)
    for p in programs(c['program'])
    for k, row in enumerate(p['equations'])
    if row[0] in ('released', 'published')
    for n in {*p['arguments'], *(x for y in p['equations'][:k] for x in y[3])}
    if n in data
  ]
  row, n = r.choice(choices)
  row[2][0] = n


def change_bound(c, r):
  release = r.choice(c['releases'])
  release['clip_norm'] = (release['clip_norm'] or 1.0) * r.uniform(0.2, 0.9)


def change_scale(c, r):
  r.choice(c['releases'])['noise_multiplier'] *= r.uniform(1.01, 3)


def change_hyper(c, r):
  c['hyper']['hp.noise_multiplier'] *= r.choice([0.5, 0.9, 1.1, 2.0])


def change_law(c, r):
  """Noise of another grid than that of the contribution."""
  row = r.choice(rows_of(c, 'drawn', 'contribution'))
  put_constant(c, row, 'float32', r.uniform(0.1, 9))


def change_key(c, r):
  keys = r.choice(c['releases'])['keys']
  keys[0] = keys[0].replace('noise_key', r.choice(['key', 'state.round', '7']))


def fix_key(c, r):
  """Draws the noise of a round from a key that no round changes."""
  secret = {*variables_of(c, 'secret')}
  for row in rows_of(c, 'random_fold_in'):
    if secret & {*row[3]}:
      put_constant(c, row, 'uint32', r.randrange(9))


def change_count(c, r):
  release = r.choice(c['releases'])
  release['times'] += r.choice([1, 2, 5])


def drop_release(c, r):
  c['releases'].pop(r.randrange(len(c['releases'])))


def change_argument(c, r):
  r.choice([x for x in c['arguments'] if x[1] != 'public'])[1] = 'public'


def change_result(c, r):
  r.choice([x for x in c['results'] if x[0][:5] == 'state'])[1] = 'data'


def change_account(c, r):
  a = c['account']
  names = 'epsilon', 'delta', 'rounds', 'noise_multiplier'
  of_mechanism = 'noise_multiplier', 'steps', 'releases_per_step'
  choices = [(a, x) for x in names] + [
    (a['mechanism'], x) for x in of_mechanism
  ]
  where, name = r.choice(choices)
  where[name] *= r.choice(
    [2, 3] if isinstance(where[name], int) else [0.5, 3.0]
  )


CHANGES = (
  change_type, claim_public, change_equation, drop_mark, leak, change_bound,
  change_scale, change_hyper, change_law, change_key, fix_key, change_count,
  drop_release, change_argument, change_result, change_account,
)  # fmt: skip
