"""Wire formats on either side of the hub. Dialects do not know each other."""
