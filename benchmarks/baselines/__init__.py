"""What clients do without the gateway, and what the machine can do at best.

`read_modify_write` is the loop in the client, on pymongo; `cas_application` and `cas_client`
are the same loop through a plain Flask application; `trivial_application` and
`find_application` are ceilings: the web server alone, and with one read.
"""
