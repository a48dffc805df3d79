"""The pages for people: static files that ask the same routes as everybody else."""
