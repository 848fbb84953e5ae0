"""What runs the containers of pods: processes of the host, or an engine that is installed on it."""
