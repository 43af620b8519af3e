"""The controller: knows what is wanted, tells replicas, and keeps what they say together."""
