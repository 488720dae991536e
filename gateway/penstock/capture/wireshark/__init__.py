"""Decoded messages in comments of packets, for Wireshark: `config/wireshark/penstock.lua` shows them."""
