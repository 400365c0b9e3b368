"""Rounds over messages between a server and real sites, over any transport.

`programs` are the compiled pieces of a round, of which `client` and `server`
are the two sides; `wire` has the messages. `federation` trains a
config over sites, which Flower (`flower`), NVFlare (`nvflare`) or your own
`transport` connects. An engine's process at a site only `relay`s messages to
the `site_process`, which keeps programs, state and the `site`'s `own_data`.

`hosted` are sites that train by themselves and exchange outer steps. What is in
`numpy_*` loads no JAX: codecs, and compressed updates of any framework.
"""
