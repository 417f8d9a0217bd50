"""The console: a page for people, in plain HTML, CSS and ES modules, in ``static``.

It speaks HTTP to this service alone; ``gateway.http.routes.static`` serves it. ``json.js``,
``differences.js``, ``merge.js``, ``event_stream.js``, ``concerns.js``, ``schema.js``, ``lists.js``,
``field_patch.js`` and ``routes.js`` are pure: they know neither the page nor the network.
``api.js`` and ``feed.js`` speak to the service, ``views/`` show.
"""
