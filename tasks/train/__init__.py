"""Training on SkyRL's Tinker server: supervised rows, and reinforcement on sandboxed tasks."""
