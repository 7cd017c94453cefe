"""What one call of a port goes through, from its arrival to its end, whichever transport has received it."""
