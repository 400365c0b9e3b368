"""Audits that attack private rounds and bound epsilon from below."""
