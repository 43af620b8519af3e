"""What `penstock doctor` looks at."""
