"""Turing machines, and the Turing Programs that transformers learn to write (Hou et al. 2024).

    machine     states, symbols and transitions; random machines and those of a TOML file
    simulate    runs, step by step, in plain Python
    render      a run as text: prompt and scratchpad

>>> from harness.turing.machine import random_machine
>>> from harness.turing.render import scratchpad
>>> from harness.turing.simulate import Configuration, run
>>> machine = random_machine(0)
>>> scratchpad(machine, run(machine, Configuration((0, 1, 2), head=0, state=0), steps=1))
'$ b1 a2 a3 ~ s1 | ( s5 a4 R ) a4 b2 a3 ~ s5 .'
"""
