"""Scripts that need packages which tests may lack are not looked through for doctests."""

collect_ignore = ["http_cases.py", "serve_faults.py", "serve_kills.py", "serve_reloads.py", "servers.py"]
