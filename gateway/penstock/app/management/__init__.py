"""The management listener: an HTTP and JSON interface for operators and their tools to a running gateway."""
