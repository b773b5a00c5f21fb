"""Services beside a server: programs of the pipeline that answer requests of the server on a local socket."""
