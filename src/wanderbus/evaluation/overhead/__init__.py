"""Cost of mobility: the SIPMobility and MD-ECI paper's figure 8 (SPEC R-01).

A publisher sends events to consumers on the same device, in four configurations, from the original ECI to a relay on a
third host. The figure is lost; the paper gives the ranking of the configurations and its reasons.
"""
