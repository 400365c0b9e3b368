"""Print a config as it will run, as assignments to its fields.

  fl-sketch config CONFIG [--config.FIELD=VALUE]

Fields that are unset are left out; --config_help says what each field means.
"""

from fl_sketch.runs import config

from . import begin, configs

configs.define_flag()


def main(argv):
  """Print the fields of a config, by group."""
  begin(argv)
  c = config.Config.from_mapping(configs.fields())
  print(config.assignments(c))
