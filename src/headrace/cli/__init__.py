"""Command line `headrace`.

Exit codes:

    0    done
    1    it ran and failed: a bad row or file, two rows of one key, a function that raised,
         a damaged checkpoint; no controller answers, or another one has taken over;
         `check` found errors
    2    refused before it ran: a wrong option, a flow that is not there or not sound,
         a checkpoint of another flow or in use
    3    `why` cannot tell whether the row is there
    130  ended by Ctrl-C, after the tick at work; 143 by SIGTERM
"""
