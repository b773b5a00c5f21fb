"""The paper's measurements repeated on this system, beside what was published.

Each experiment is done twice: in virtual time on the machines themselves, many times over, and in real time with real
processes and real changes of address. Both do the same plan.
"""
