"""The restart guard of a master (rules 10 and 11b): the modules from which one_file.py makes the one file
that masters' hosts get. It runs there without lockd: nothing here imports anything but its neighbours and the
standard library of Python 3.9. Begin with __main__.py, the head of that file: what the guard does, and why.

    delay, errors, printable, reasons   numbers and words
    disk, config, host, clocks          the machine
    redis_link, rest                    Redis, asked before a stop
    records, state_folder               what the guard keeps
    aof, marks, data                    Redis's data, and what was noted of it
    guard, metrics, last_stop           what commands share
    enter, stop, leave, watch, clock_steps, overrides, status      the commands
    cli                                 the command line
"""
