"""The paper's measurements repeated on this system, beside the published values.

Loss under mobility is measured twice: in virtual time on the machines themselves, many times over, and in real time
with real processes and real changes of address. Both run the same plan. The cost of mobility is measured only in real
time, and the savings of merging on the filters themselves.
"""
