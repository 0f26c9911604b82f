"""What each key may take over time and in all workers: requests and tokens a minute, stored bytes, shares."""
