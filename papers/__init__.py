"""The archive: papers that fl_sketch implements, and studies of its own.

`song`, `das`, `haddadpour` and `chen` have a folder for each paper: its
`statements` as functions, the `studies` of its figures and tables, and configs.
`trained`, `language` and `private` are studies of this project. `common` is
what all of them share, and `catalog` lists every study.

Nothing in fl_sketch imports this package. An installed package has it as
`fl_sketch.papers`.
"""
