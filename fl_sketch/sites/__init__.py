"""Rounds over messages between a server and real sites, over any transport.

`programs` are the compiled pieces of a round, `client` and `server` its two
sides, `wire` and `requests` the messages; their transport is the caller's.
`federation` trains a config over sites, which Flower (`flower`), NVFlare
(`nvflare`) or your own transport connects. `relay` is all that the process of
an engine needs: it hands a message over to the `resident_worker` of the site,
which keeps programs and state, on the site's own data (`own_data`).
"""
