"""The process that serves: its port, its shutdown, and the processes of several workers."""
