"""`manage.py bench`: how many tasks a second pass through the doors, beside what the same server can do at all."""
