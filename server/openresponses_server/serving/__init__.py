"""The process that serves: its port, how it leaves, and the processes of several workers."""
