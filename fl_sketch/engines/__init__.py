"""Run the rounds of a config between real sites, over an engine.

`relay` is all that the process of an engine needs: it hands a message over to
`worker`, the resident worker of the site, which keeps programs and state, on
the site's own data (`own_data`). `fl-sketch site` starts one.
"""
