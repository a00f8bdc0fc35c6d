"""Decisions without a clock, a socket or Twisted: events in, effects out."""
