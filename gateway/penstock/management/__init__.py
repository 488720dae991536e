"""The management listener: what operators and their tools ask of a running gateway, by HTTP and JSON."""
