"""The frames of runs as they are sent, for everybody who reads along."""
