"""Upstreams and recordings: what records one that is asked, and what answers in the place of one."""
