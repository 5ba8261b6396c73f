"""The charts of the pages, as SVG paths in a plot area of 1000 by 1000. Pure.

The templates draw them stretched to the page, with the labels of the axes as text beside them, so
nothing here knows pixels or colours. A dot is a line of no length with round or square ends.
"""
