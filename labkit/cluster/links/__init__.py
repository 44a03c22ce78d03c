"""Hosts and links between ranks: their rates, how Linux makes them, what they carry."""
