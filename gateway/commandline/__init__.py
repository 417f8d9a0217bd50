"""The commands that speak to a gateway over HTTP; one module for each family of them.

Nothing here imports the service: they run where the client's packages alone are installed. Each
module is imported when one of its commands is run (see ``lazy``).
"""
