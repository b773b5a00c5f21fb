"""The paper's experiment with merging, its figure 1 (SPEC R-04 to R-06, X5, X35).

The figure is lost, and its text leaves open which operators the constraints had and which events precision was
counted with. So there are several mixes, each a full reading of the text, and each is reported beside the published
values.
"""
