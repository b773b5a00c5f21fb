"""What mobility costs, the SIPMobility and MD-ECI paper's figure 8 (SPEC R-01).

Events go from a publisher to consumers on the same device, in four configurations, from the original ECI to a relay on
a third host. The figure is lost; the paper says which configuration is slower than which, and why.
"""
