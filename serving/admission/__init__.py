"""Admission: what a request may use of the server, decided before the work is done. Knows no transport."""
