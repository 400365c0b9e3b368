"""Host helpers that every other package may use.

`chacha20` draws from a secret key, `checks` validates numbers and `fields` the
fields of configs, `registry` finds factories by name and `plugins` loads those
of users, `renamed` reads old names, `digests` identifies arrays and source
files, `extras` names optional packages that are missing, `files` writes files
atomically, `lazy` loads modules on first use, `markdown` makes tables,
`progress` shows bars, `search` bisects monotone predicates, and `seeding`
derives NumPy generators from seeds.
None of them imports a sketch, a round or a config.
"""

from fl_sketch.utils import lazy

__version__ = '0.1.0'  # in the lowest layer, so that files can record it
__getattr__ = lazy.attach(__name__)
