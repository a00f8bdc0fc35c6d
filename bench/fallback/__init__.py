"""Stub and load generator for machines without a C compiler: the same command lines, the same output.

They cost far more themselves, so rates and latencies are lower; processor time per unit stays comparable
within a run.
"""
