"""`manage.py up`: PostgreSQL, Valkey and Titen's own processes under one parent.

Read `up` first (the order of things), then `child` (one process kept alive), `guard` (what happens
when the parent itself is killed), `services` (the command lines), `postgres` and `valkey`.
"""
