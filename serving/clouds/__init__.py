"""What managed clouds require of a container: environment variables, and routes of the REST port."""
