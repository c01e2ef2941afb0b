"""Pages and charts of what was simulated: one HTML file each, which needs no other file and no network.

The charts are SVG that this package writes itself, some 50 kB a page. A library that works offline puts its script into
every page (Plotly's has 4.8 MB, Bokeh's 1.3 MB), and none draws a schedule of a million jobs, for which a script
of our own would be needed all the same; matplotlib's SVG keeps neither the reader's colours nor his font.
"""
