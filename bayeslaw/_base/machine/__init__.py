"""Use the machine: threads, memory, JAX's set-up, work on other machines."""
