"""The paper's measurements repeated on this system, beside what was published.

Loss under mobility is measured twice: in virtual time on the machines themselves, many times over, and in real time
with real processes and real changes of address. Both do the same plan. What mobility costs is measured in real time
alone, and what merging saves on the filters themselves.
"""
