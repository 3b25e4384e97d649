"""The Grafana dashboards, and what makes them: `python -m dashboards` writes the JSON files beside this.

Plain dictionaries, as Grafana 10 and later read them. (grafana-foundation-sdk was looked at: its versions on
PyPI are numbered by build and release, so that pip takes an old release for the newest; and dictionaries need
no dependency.)
"""
