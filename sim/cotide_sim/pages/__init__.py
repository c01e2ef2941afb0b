"""Pages and charts of simulations: one HTML file each, without any other file or network.

The charts are SVG that this package writes itself, some 50 kB a page. A library that works offline puts its script into
every page (Plotly's has 4.8 MB, Bokeh's 1.3 MB). None draws a schedule of a million jobs, so that our own script is
needed in any case. matplotlib's SVG keeps neither the colours nor the font of the reader.
"""
