"""What an agent would refuse of its configuration. The agent's own code says so, from the sources that are
about to be installed."""

from __future__ import annotations

import sys

from ansible.plugins.lookup import LookupBase

DOCUMENTATION = """
name: lockd_refusals
short_description: The mistakes for which an agent would refuse a configuration
description:
  - Reads a configuration as the agent does, and lists its mistakes. Files that it names are not looked at.
options:
  _terms:
    description: The text of the configuration.
    required: true
  source:
    description: The repository that is installed.
    type: path
    required: true
"""
RETURN = """
_raw:
  description: A text for each mistake, which says where it is and what to write instead.
  type: list
  elements: str
"""


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **options):
        self.set_options(var_options=variables, direct=options)
        source = self.get_option("source")
        if source not in sys.path:
            sys.path.insert(0, source)
        from lockd.config.model import refusals

        return [str(one) for text in terms for one in refusals(text.encode())]
